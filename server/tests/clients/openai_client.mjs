// Checks a server with the openai client for Node: openai_client.mjs URL
import assert from 'node:assert/strict';

let OpenAI;
try {
  ({ default: OpenAI } = await import('openai'));
} catch (error) {
  console.log(`skipped: ${error.message.split('\n')[0]}; npm install openai`);
  process.exit(0);
}

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: 'none', maxRetries: 0 });
const model = (await client.models.list()).data[0].id;
const messages = [{ role: 'user', content: 'In the beginning' }];

const request = { model, messages, max_tokens: 12, seed: 3 };
const whole = await client.chat.completions.create(request);
assert.equal(whole.choices[0].finish_reason, 'length');
const stream = await client.chat.completions.create(
  { ...request, stream: true, stream_options: { include_usage: true } });
let joined = '';
let usage = null;
for await (const chunk of stream) {
  joined += chunk.choices[0]?.delta.content ?? '';
  usage = chunk.usage ?? usage;
}
assert.equal(joined, whole.choices[0].message.content);
assert.deepEqual(usage, whole.usage);

const final = await client.chat.completions.stream({ ...request, logprobs: true }).finalChatCompletion();
assert.equal(final.choices[0].message.content, joined);
assert.equal(final.choices[0].logprobs.content.length, 12);

await assert.rejects(client.chat.completions.create({ ...request, model: 'none' }), OpenAI.NotFoundError);
await assert.rejects(client.chat.completions.create({ ...request, top_p: 7 }), OpenAI.BadRequestError);
console.log('openai for Node: all checks passed');
