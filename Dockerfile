# Both programs, and the command line, as container images, without a shell and without root:
#
#   docker build --target receiver --tag sampler-receiver .
#   docker build --target worker --tag sampler-worker .
#   docker build --target cli --tag sampler .
#
# compose.yaml starts them with a MongoDB and a stand-in for Abacus.
#
# An image with the toolchain of rust-toolchain.toml and a C compiler; the digest is for all platforms.
ARG BUILDER=docker.io/library/rust:1.95.0-bookworm@sha256:6258907abe69656e41cd992e0b705cdcfabcbbe3db374f92ed2d47121282d4a1

FROM ${BUILDER} AS source
WORKDIR /src
COPY . .

FROM source AS build
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target,id=sampler-target \
    cargo build --locked --profile cloud --package sampler-receiver --package sampler-worker \
    && cargo build --locked --profile cloud --package sampler-cli \
    && install -D --target-directory=/out target/cloud/sampler-receiver target/cloud/sampler-worker \
        target/cloud/sampler

# What the programs need of the system: the libraries that they are linked with, and the certificates
# of public authorities.
FROM build AS system
RUN mkdir /system \
    && ldd /out/* | grep --only-matching '/lib[^ ]*' | sort --unique \
        | xargs cp --dereference --parents --target-directory=/system \
    && cp --dereference --parents --target-directory=/system /etc/ssl/certs/ca-certificates.crt

# Nothing else is in the images: no shell, no package manager, nobody to log in as.
FROM scratch AS runtime
COPY --from=system /system /
USER 65532:65532
LABEL org.opencontainers.image.licenses="Apache-2.0"
COPY LICENSE /
# SIGTERM, and 10 s until the program is killed: it ends within 8 s.
STOPSIGNAL SIGTERM
# There is no HEALTHCHECK: it would need a program in the image that speaks HTTP, and orchestrators
# ask for themselves. Only /healthz/live is a reason to start a container again; /healthz/ready says
# whether requests may be sent to it. See docs/operations.md.

FROM runtime AS receiver
COPY --from=build /out/sampler-receiver /
EXPOSE 7070
ENTRYPOINT ["/sampler-receiver"]

FROM runtime AS worker
COPY --from=build /out/sampler-worker /
EXPOSE 7071
ENTRYPOINT ["/sampler-worker"]

# docker run --rm --volume "$PWD:/data:ro" --env SAMPLER_URL --env SAMPLER_TOKEN \
#   sampler verify /data/events.ndjson
FROM runtime AS cli
COPY --from=build /out/sampler /
ENTRYPOINT ["/sampler"]

# What compose.yaml has in the place of Abacus. It does not belong in production.
FROM source AS build-stand-in
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target,id=sampler-target \
    cargo build --locked --package sampler-testkit --bin sampler-stand-in \
    && install -D --target-directory=/out target/debug/sampler-stand-in

FROM runtime AS stand-in
COPY --from=build-stand-in /out/sampler-stand-in /
EXPOSE 9080
ENTRYPOINT ["/sampler-stand-in"]
