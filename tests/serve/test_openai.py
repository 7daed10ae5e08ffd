"""OpenAI's own client, unmodified: test_openai.py PLIMSOLL MODEL. Runs itself under the Python that PL_OPENAI_PYTHON
names, where that is set; skips where no client is installed."""

import os
import sys

if os.environ.get("PL_OPENAI_PYTHON") and sys.executable != os.environ["PL_OPENAI_PYTHON"]:
    os.execv(os.environ["PL_OPENAI_PYTHON"], [os.environ["PL_OPENAI_PYTHON"], *sys.argv])

from client import Server, run_cases, without_key  # noqa: E402

try:
    import openai
except ImportError:
    print("1..0 # SKIP the openai package is not installed (PL_OPENAI_PYTHON: a Python that has it)")
    sys.exit(0)

PROGRAM, MODEL = sys.argv[1:3]
server = Server(PROGRAM, MODEL, env=without_key())
client = openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0)
VERSE = [{"role": "user", "content": "Recite Genesis 1:1."}]
WORDS = "In the beginning God created the heaven and the earth."


def models_are_listed():
    assert [m.id for m in client.models.list()] == ["demo"]


def chat_answers():
    answer = client.chat.completions.create(model="demo", messages=VERSE, temperature=0,
                                            logprobs=True, top_logprobs=2)
    choice = answer.choices[0]
    assert choice.message.content == WORDS and choice.finish_reason == "stop"
    assert len(choice.logprobs.content) == answer.usage.completion_tokens
    assert len(choice.logprobs.content[0].top_logprobs) == 2


def chat_streams():
    text, usage = "", None
    for chunk in client.chat.completions.create(model="demo", messages=VERSE, temperature=0,
                                                stream=True, stream_options={"include_usage": True}):
        for choice in chunk.choices:
            text += choice.delta.content or ""
        usage = chunk.usage or usage
    assert text == WORDS and usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def reasoning_comes_apart():
    answer = client.chat.completions.create(
        model="demo", messages=VERSE, temperature=0,
        extra_body={"chat_template_kwargs": {"thinking": True}})
    message = answer.choices[0].message
    assert message.content == WORDS
    assert message.reasoning_content == "The user asks for Genesis 1:1."


def tools_are_taken():
    tool = {"type": "function", "function": {"name": "f", "description": "does it",
                                             "parameters": {"type": "object", "properties": {}}}}
    answer = client.chat.completions.create(model="demo", messages=VERSE, tools=[tool],
                                            tool_choice="auto", max_tokens=3)
    assert answer.choices[0].finish_reason in ("length", "stop")


def completions_answer_and_stream():
    whole = client.completions.create(model="demo", prompt="Once upon", max_tokens=5, temperature=0)
    text = "".join(c.choices[0].text for c in client.completions.create(
        model="demo", prompt="Once upon", max_tokens=5, temperature=0, stream=True))
    assert text == whole.choices[0].text != ""


def errors_are_the_client_s():
    for wrong, error in (({"model": "x"}, openai.NotFoundError),
                         ({"messages": []}, openai.BadRequestError),
                         ({"temperature": 5000}, openai.BadRequestError)):
        try:
            client.chat.completions.create(**{"model": "demo", "messages": VERSE, **wrong})
        except error as e:
            assert e.param == list(wrong)[0]
        else:
            raise AssertionError(wrong)


run_cases([models_are_listed, chat_answers, chat_streams, reasoning_comes_apart, tools_are_taken,
           completions_answer_and_stream, errors_are_the_client_s], [server])
