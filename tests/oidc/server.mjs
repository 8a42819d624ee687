// A certified OpenID provider with the clients of a test: client credentials, JWT access tokens, and
// keys that are replaced when somebody posts to /rotate. It says where it listens in one line of
// JSON, as our programs do.
//
// PORT: where to listen, 0 for any. CLIENTS: a JSON list of { client_id, client_secret, scope }.

import { generateKeyPairSync, randomUUID, webcrypto } from 'node:crypto';
import { createServer } from 'node:http';

// Node 18 has it, but not everywhere.
globalThis.crypto ??= webcrypto;
const { default: Provider } = await import('oidc-provider');

const clients = JSON.parse(process.env.CLIENTS);
const scopes = [...new Set(clients.flatMap((client) => client.scope.split(' ')))].join(' ');

// Whom tokens may be for. Who does not say gets one for the first.
const RESOURCES = ['urn:abacus', 'urn:sampler'];

function newKey() {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  return { ...privateKey.export({ format: 'jwk' }), kid: randomUUID(), use: 'sig', alg: 'RS256' };
}

// The first key signs; the one before stays published, for tokens that are still about.
function provider(issuer, keys) {
  return new Provider(issuer, {
    cookies: { keys: [randomUUID()] },
    jwks: { keys },
    clients: clients.map((client) => ({
      ...client,
      grant_types: ['client_credentials'],
      redirect_uris: [],
      response_types: [],
    })),
    scopes: scopes.split(' '),
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: false },
      resourceIndicators: {
        enabled: true,
        defaultResource: (ctx, client, oneOf) => oneOf ?? RESOURCES[0],
        getResourceServerInfo: (ctx, resource) => {
          if (!RESOURCES.includes(resource)) throw new Error('an unknown resource');
          return {
            scope: scopes,
            audience: resource,
            accessTokenFormat: 'jwt',
            accessTokenTTL: 300,
            jwt: { sign: { alg: 'RS256' } },
          };
        },
      },
    },
  }).callback();
}

let answer;
const server = createServer((request, response) => answer(request, response));
server.listen(Number(process.env.PORT), '127.0.0.1', () => {
  const address = `127.0.0.1:${server.address().port}`;
  const issuer = `http://${address}`;
  let keys = [newKey()];
  let inner = provider(issuer, keys);
  answer = (request, response) => {
    if (request.url !== '/rotate') return inner(request, response);
    keys = [newKey(), keys[0]];
    inner = provider(issuer, keys);
    response.end();
  };
  console.log(JSON.stringify({ message: 'listening', address }));
});
