"""OpenAI's own client, unmodified: test_openai.py PLIMSOLL MODEL. Runs itself under the Python that PL_OPENAI_PYTHON
names, where that is set; skips where no client is installed."""

import json
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
    assert client.models.retrieve("demo").id == "demo"
    try:
        client.models.retrieve("gpt")
    except openai.NotFoundError as e:
        assert e.code == "model_not_found"
    else:
        raise AssertionError("a model that is not served")


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


TOOLS = [{"type": "function", "function": {"name": name, "description": "does it", "parameters": {
    "type": "object", "properties": {"days": {"type": "integer"}, "exact": {"type": "boolean"}}, "required": required}}}
    for name, required in (("get_weather", ["days", "exact"]), ("get_time", []))]


def called(choice, names):
    """The one call of an answer, of a tool that it may call, with the arguments that must be there."""
    assert choice.finish_reason == "tool_calls", choice
    call, = choice.message.tool_calls
    given = json.loads(call.function.arguments)
    assert call.type == "function" and call.id and call.function.name in names, call
    assert set(given) <= {"days", "exact"} and (call.function.name == "get_time" or len(given) == 2), given
    return call


def tools_are_taken():
    answer = client.chat.completions.create(model="demo", messages=VERSE, tools=TOOLS, tool_choice="auto", max_tokens=3)
    assert answer.choices[0].finish_reason in ("length", "stop")
    alone = client.chat.completions.create(model="demo", messages=VERSE, max_tokens=3)
    none = client.chat.completions.create(model="demo", messages=VERSE, tools=TOOLS, tool_choice="none", max_tokens=3)
    assert answer.usage.prompt_tokens > none.usage.prompt_tokens == alone.usage.prompt_tokens


CALL = {"model": "demo", "messages": VERSE, "tools": TOOLS, "temperature": 0, "max_tokens": 600, "parallel_tool_calls": False}


def calls_are_enforced():
    called(client.chat.completions.create(**CALL, tool_choice="required").choices[0], ("get_weather", "get_time"))
    for name in ("get_weather", "get_time"):
        choice = {"type": "function", "function": {"name": name}}
        called(client.chat.completions.create(**CALL, tool_choice=choice).choices[0], (name,))


def calls_stream_in_pieces():
    choice = {"type": "function", "function": {"name": "get_weather"}}
    whole = called(client.chat.completions.create(**CALL, tool_choice=choice).choices[0], ("get_weather",))
    heads, arguments, ends, n_pieces = [], "", [], 0
    for chunk in client.chat.completions.create(**CALL, tool_choice=choice, stream=True):
        for part in chunk.choices:
            ends += [part.finish_reason] if part.finish_reason else []
            for delta in part.delta.tool_calls or []:
                assert delta.index == 0
                if delta.id:
                    heads.append((delta.type, delta.function.name))
                arguments += delta.function.arguments or ""
                n_pieces += bool(delta.function.arguments)
    assert heads == [("function", "get_weather")] and ends == ["tool_calls"], (heads, ends)
    assert arguments == whole.function.arguments and n_pieces > 1


def an_answer_to_a_call_goes_back():
    choice = {"type": "function", "function": {"name": "get_weather"}}
    message = client.chat.completions.create(**CALL, tool_choice=choice).choices[0].message
    answer = client.chat.completions.create(
        model="demo", tools=TOOLS, temperature=0, max_tokens=4, messages=[
            *VERSE, message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "rain"}])
    assert answer.usage.completion_tokens > 0


def answers_are_json():
    answer = client.chat.completions.create(model="demo", messages=VERSE, temperature=0, max_tokens=60,
                                            response_format={"type": "json_object"})
    assert isinstance(json.loads(answer.choices[0].message.content), dict)
    try:
        client.chat.completions.create(model="demo", messages=VERSE, response_format={
            "type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}})
    except openai.BadRequestError as e:
        assert e.param == "response_format" and "json_schema" in e.message
    else:
        raise AssertionError("json_schema")


def log_probabilities_are_told():
    ask = {"model": "demo", "messages": VERSE, "temperature": 0, "logprobs": True, "top_logprobs": 3, "seed": 7}
    choice = client.chat.completions.create(**ask).choices[0]
    entries = choice.logprobs.content
    assert "".join(e.token for e in entries[:-1]) == WORDS  # the last is the end token
    for entry in entries:
        top = [t.logprob for t in entry.top_logprobs]
        assert entry.token == entry.top_logprobs[0].token and entry.logprob == top[0] <= 0
        assert top == sorted(top, reverse=True) and bytes(entry.bytes).decode() == entry.token
    streamed = [e for chunk in client.chat.completions.create(**ask, stream=True) for c in chunk.choices if c.logprobs
                for e in c.logprobs.content]
    assert streamed == entries
    said = client.completions.create(model="demo", prompt="Once upon", max_tokens=4, temperature=0, logprobs=2,
                                     echo=True).choices[0]
    assert "".join(said.logprobs.tokens) == said.text and len(said.logprobs.top_logprobs) == len(said.logprobs.tokens)
    assert said.logprobs.text_offset[0] == 0 and said.logprobs.token_logprobs[-1] <= 0


def completions_answer_and_stream():
    whole = client.completions.create(model="demo", prompt="Once upon", max_tokens=5, temperature=0)
    text = "".join(c.choices[0].text for c in client.completions.create(
        model="demo", prompt="Once upon", max_tokens=5, temperature=0, stream=True))
    assert text == whole.choices[0].text != ""


def refused(error, status, **wrong):
    try:
        client.chat.completions.create(**{"model": "demo", "messages": VERSE, **wrong})
    except error as e:
        assert e.status_code == status, e
        return e
    raise AssertionError(wrong)


def errors_are_the_client_s():
    for wrong in ({"messages": []}, {"temperature": 5000}, {"n": 129}, {"logprobs": True, "top_logprobs": 21}, {"max_tokens": 0},
                  {"stop": [""]}, {"tool_choice": "required"}, {"logit_bias": {"x": 1}}):
        e = refused(openai.BadRequestError, 400, **wrong)
        assert e.param in wrong and e.type == "invalid_request_error" and e.body["message"], (wrong, e.body)
    e = refused(openai.NotFoundError, 404, model="x")
    assert e.param == "model" and e.code == "model_not_found"
    refused(openai.BadRequestError, 400, stream=True, temperature=5000)


def a_key_is_shown():
    guarded = Server(PROGRAM, MODEL, "--max-model-len", "512", env={**without_key(), "PLIMSOLL_API_KEY": "sk-one"})
    try:
        base = {"base_url": guarded.url + "/v1", "max_retries": 0}
        assert [m.id for m in openai.OpenAI(api_key="sk-one", **base).models.list()] == ["demo"]
        try:
            openai.OpenAI(api_key="sk-two", **base).models.list()
        except openai.AuthenticationError as e:
            assert e.status_code == 401
        else:
            raise AssertionError("a wrong key was taken")
    finally:
        status = guarded.stop()
    assert status == 0


def many_choices_and_their_seed():
    ask = {"model": "demo", "messages": VERSE, "n": 3, "temperature": 1.5, "max_tokens": 8}
    answer = client.chat.completions.create(**ask)
    again = client.chat.completions.create(**ask, seed=answer.seed)
    assert [c.message.content for c in answer.choices] == [c.message.content for c in again.choices]
    assert answer.system_fingerprint == again.system_fingerprint and answer.usage == again.usage
    assert [c.index for c in answer.choices] == [0, 1, 2]


run_cases([models_are_listed, chat_answers, chat_streams, reasoning_comes_apart, tools_are_taken, calls_are_enforced,
           calls_stream_in_pieces, an_answer_to_a_call_goes_back, answers_are_json, log_probabilities_are_told,
           completions_answer_and_stream, errors_are_the_client_s, a_key_is_shown, many_choices_and_their_seed], [server])
