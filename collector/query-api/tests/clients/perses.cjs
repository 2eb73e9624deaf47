// Requests data from an API of Tempo by the client of Perses, and prints the client's results.
const client = require("@perses-dev/tempo-plugin/lib/cjs/model/tempo-client.js");

async function main() {
  const options = { datasourceUrl: process.argv[2] };
  const found = await client.searchWithFallback({ q: '{ resource.service.name = "shop" }', limit: 20 }, options);
  const traceId = found.traces[0].traceID;
  const trace = await client.query({ traceId }, options);
  const tags = await client.searchTags({ limit: 100 }, options);
  const values = await client.searchTagValues({ tag: "resource.service.name", q: "{}" }, options);
  let refused = "";
  try {
    await client.search({ q: "{ .a = }" }, options);
  } catch (error) {
    refused = String(error);
  }
  console.log(JSON.stringify({ found, trace, tags, values, refused }));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
