// What the official client is asked to do: node openai.cjs FOLDER BASE-URL CASE; FOLDER's node_modules has it. `look` in
// place of the URL: whether it is there. The expectations are those of test_openai.py.
const assert = require('node:assert');
const { createRequire } = require('node:module');

const [folder, baseURL, name] = process.argv.slice(2);
let module_;
try {
  module_ = createRequire(folder)('openai');
} catch (error) {
  process.exit(9);
}
if (baseURL === 'look') process.exit(0);

const OpenAI = module_.OpenAI || module_;
const client = new OpenAI({ baseURL, apiKey: 'any', maxRetries: 0 });
const messages = [{ role: 'user', content: 'Recite Genesis 1:1.' }];
const words = 'In the beginning God created the heaven and the earth.';
const verse = { model: 'demo', messages, temperature: 0 };
const tool = {
  type: 'function',
  function: {
    name: 'get_weather',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
};

const cases = {
  async models() {
    const ids = [];
    for await (const model of client.models.list()) ids.push(model.id);
    assert.deepStrictEqual(ids, ['demo']);
  },

  async chat() {
    const answer = await client.chat.completions.create({ ...verse, logprobs: true, top_logprobs: 2 });
    const [choice] = answer.choices;
    assert.strictEqual(choice.message.content, words);
    assert.strictEqual(choice.finish_reason, 'stop');
    assert.strictEqual(choice.logprobs.content.length, answer.usage.completion_tokens);
    assert.strictEqual(choice.logprobs.content[0].top_logprobs.length, 2);
  },

  async chat_stream() {
    let text = '';
    let usage = null;
    const stream = await client.chat.completions.create({
      ...verse, stream: true, stream_options: { include_usage: true },
    });
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta?.content || '';
      usage = chunk.usage || usage;
    }
    assert.strictEqual(text, words);
    assert.strictEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
  },

  async reasoning() {
    const answer = await client.chat.completions.create({ ...verse, chat_template_kwargs: { thinking: true } });
    assert.strictEqual(answer.choices[0].message.content, words);
    assert.strictEqual(answer.choices[0].message.reasoning_content, 'The user asks for Genesis 1:1.');
  },

  async tools() {
    const ask = { ...verse, tools: [tool], tool_choice: 'required', parallel_tool_calls: false, max_tokens: 400 };
    const { choices: [choice] } = await client.chat.completions.create(ask);
    const [call] = choice.message.tool_calls;
    assert.strictEqual(call.function.name, 'get_weather');
    assert.strictEqual(typeof JSON.parse(call.function.arguments).city, 'string');
    let streamed = '';
    for await (const chunk of await client.chat.completions.create({ ...ask, stream: true })) {
      streamed += chunk.choices[0]?.delta?.tool_calls?.[0]?.function?.arguments || '';
    }
    assert.strictEqual(streamed, call.function.arguments);
  },

  async completions() {
    const ask = { model: 'demo', prompt: 'Once upon', max_tokens: 5, temperature: 0, echo: true, logprobs: 1 };
    const whole = await client.completions.create(ask);
    let text = '';
    for await (const chunk of await client.completions.create({ ...ask, stream: true })) text += chunk.choices[0].text;
    assert.ok(text.startsWith('Once upon') && text.length > 9);
    assert.strictEqual(text, whole.choices[0].text);
    assert.strictEqual(whole.choices[0].logprobs.tokens.join(''), text);
  },

  async errors() {
    for (const [wrong, type] of [
      [{ model: 'x' }, module_.NotFoundError],
      [{ messages: [] }, module_.BadRequestError],
      [{ temperature: 5000 }, module_.BadRequestError],
    ]) {
      await assert.rejects(client.chat.completions.create({ ...verse, ...wrong }), (error) => {
        assert.ok(error instanceof type, String(error));
        assert.strictEqual(error.param, Object.keys(wrong)[0]);
        return true;
      });
    }
  },
};

cases[name]().catch((error) => {
  console.error(error);
  process.exit(1);
});
