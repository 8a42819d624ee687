// A certified OpenID provider with the clients of a test: client credentials, authorization codes,
// JWT access tokens, and keys that are replaced when somebody posts to /rotate. It says where it
// listens in one line of JSON, as our programs do.
//
// PORT: where to listen, 0 for any. CLIENTS: a JSON list of { client_id, client_secret, scope };
// a client with redirect_uris signs people in. Anybody may sign in, with any password. The name
// decides on the scopes of the token: PEOPLE, a JSON object, has the scopes of those who do not get
// all that was asked for.

import { generateKeyPairSync, randomUUID, webcrypto } from 'node:crypto';
import { createServer } from 'node:http';

// Node 18 has it, but not everywhere.
globalThis.crypto ??= webcrypto;
const { default: Provider } = await import('oidc-provider');

const clients = JSON.parse(process.env.CLIENTS);
const people = JSON.parse(process.env.PEOPLE ?? '{}');
const all = new Set(clients.flatMap((client) => client.scope.split(' ')));
const scopes = [...all].join(' ');

// Whom tokens may be for. Who does not say gets one for the first; people get one for the second.
const RESOURCES = ['urn:abacus', 'urn:sampler'];

function newKey() {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  return { ...privateKey.export({ format: 'jwk' }), kid: randomUUID(), use: 'sig', alg: 'RS256' };
}

function known(client) {
  if (!client.redirect_uris) {
    return { ...client, grant_types: ['client_credentials'], redirect_uris: [], response_types: [] };
  }
  // A native application may come back to any port of the loopback (RFC 8252, section 7.3).
  return {
    ...client,
    application_type: 'native',
    grant_types: ['authorization_code'],
    response_types: ['code'],
  };
}

// The first key signs; the one before stays published, for tokens that are still about.
function provider(issuer, keys) {
  return new Provider(issuer, {
    cookies: { keys: [randomUUID()] },
    jwks: { keys },
    clients: clients.map(known),
    scopes: scopes.split(' '),
    claims: { openid: ['sub', 'preferred_username'] },
    conformIdTokenClaims: false,
    findAccount: (ctx, id) => ({
      accountId: id,
      claims: () => ({ sub: id, preferred_username: id }),
    }),
    pkce: { required: () => true },
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: (ctx, client, oneOf) =>
          oneOf ?? RESOURCES[client.grantTypeAllowed('authorization_code') ? 1 : 0],
        useGrantedResource: () => true,
        getResourceServerInfo: (ctx, resource) => {
          if (!RESOURCES.includes(resource)) throw new Error('an unknown resource');
          return {
            scope: scopes,
            audience: resource,
            accessTokenFormat: 'jwt',
            accessTokenTTL: Number(process.env.TOKEN_SECONDS ?? 300),
            jwt: { sign: { alg: 'RS256' } },
          };
        },
      },
    },
    formats: {
      customizers: {
        jwt: (ctx, token, jwt) => {
          const scope = people[token.accountId];
          if (scope !== undefined) jwt.payload.scope = scope;
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
