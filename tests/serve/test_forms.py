"""Answers of an enforced form, over many seeds, with drafts and without: test_forms.py PLIMSOLL DEMO. PL_SERVE_FORMS=N draws
more than the usual number of seeds."""

import json
import os
import sys

from client import Server, run_cases, without_key

PROGRAM, MODEL = sys.argv[1:3]
SEEDS = int(os.environ.get("PL_SERVE_FORMS", "2"))
CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "Hello"}]
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "any": {}},
    "required": required}}} for name, required in (("get_weather", ["city", "days"]), ("get_time", []))]
servers = [Server(PROGRAM, MODEL, "--max-model-len", "1024", *more, env=without_key())
           for more in ((), ("--num-speculative-tokens", "4"))]


def ask(body):
    """The choices of both servers, which must be equal bit for bit."""
    body = {"messages": HELLO, "return_token_ids": True, "return_digest": True, **body}
    plain, drafted = (s.ok(CHAT, body)["choices"] for s in servers)
    for a, b in zip(plain, drafted):
        assert (a["token_ids"], a["digest"], a["finish_reason"]) == \
            (b["token_ids"], b["digest"], b["finish_reason"]), (body, a, b)
    return plain


def objects_parse_whatever_the_length():
    for seed in range(2 * SEEDS):
        for thinking in (False, True):
            limit = (2, 3, 17, 40, 90)[seed % 5] + 12 * thinking
            for choice in ask({"response_format": {"type": "json_object"}, "seed": seed, "n": 2,
                               "temperature": (0, 0.7, 1.5)[seed % 3], "max_tokens": limit,
                               "chat_template_kwargs": {"thinking": thinking}}):
                answer = json.loads(choice["message"]["content"])
                assert isinstance(answer, dict), choice
                assert len(choice["token_ids"]) <= limit
                assert choice["finish_reason"] in ("stop", "length")


def streams_are_the_same_object():
    body = {"messages": HELLO, "response_format": {"type": "json_object"}, "max_tokens": 40, "seed": 4}
    whole = servers[0].ok(CHAT, body)["choices"][0]["message"]["content"]
    events = servers[1].stream(CHAT, body)
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in events) == whole
    assert isinstance(json.loads(whole), dict)


def calls_are_made():
    for seed in range(SEEDS):
        named = seed % 2 == 0
        choice = ask({"tools": TOOLS, "seed": seed, "temperature": (0, 1.3)[seed % 2], "max_tokens": 330,
                      "parallel_tool_calls": seed % 4 > 1,
                      "chat_template_kwargs": {"thinking": seed % 3 == 0},
                      "tool_choice": {"type": "function", "function": {"name": "get_weather"}}
                                     if named else "required"})[0]
        calls = choice["message"]["tool_calls"]
        assert calls and (len(calls) == 1 or seed % 4 > 1), choice
        assert choice["finish_reason"] in ("tool_calls", "length")
        for call in calls:
            name, given = call["function"]["name"], json.loads(call["function"]["arguments"])
            assert name == "get_weather" or (name == "get_time" and not named)
            assert set(given) <= {"city", "days", "any"}
            assert name == "get_time" or {"city", "days"} <= set(given)
            assert isinstance(given.get("city", ""), str)


def an_object_or_a_call():
    for seed in range(SEEDS // 2):
        message = ask({"tools": TOOLS, "response_format": {"type": "json_object"}, "seed": seed,
                       "max_tokens": 300})[0]["message"]
        if "tool_calls" not in message:
            assert isinstance(json.loads(message["content"]), dict)


def a_complete_answer_ends_before_min_tokens():
    choice = ask({"response_format": {"type": "json_object"}, "max_tokens": 30, "min_tokens": 20, "seed": 3,
                  "logit_bias": {}})[0]
    assert isinstance(json.loads(choice["message"]["content"]), dict)


def what_cannot_be_enforced_is_refused():
    for more, param in (({"tool_choice": "required"}, "tool_choice"),
                        ({"tools": TOOLS, "tool_choice": "maybe"}, "tool_choice"),
                        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}},
                         "tool_choice"),
                        ({"tools": TOOLS, "tool_choice": {"type": "function"}}, "tool_choice"),
                        ({"tools": TOOLS, "tool_choice": "required",
                          "response_format": {"type": "json_object"}}, "response_format"),
                        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
                        ({"response_format": {"type": "xml"}}, "response_format"),
                        ({"response_format": {"type": "json_object"}, "ignore_eos": True}, "ignore_eos"),
                        ({"tools": TOOLS, "parallel_tool_calls": 1}, "parallel_tool_calls")):
        status, _, answer = servers[0].post(CHAT, {"messages": HELLO, "max_tokens": 4, **more})
        assert (status, answer["error"]["param"]) == (400, param), (more, status, answer)


def drafts_were_made():
    assert servers[1].metric("vllm:spec_decode_num_draft_tokens_total") > 0


run_cases([objects_parse_whatever_the_length, streams_are_the_same_object, calls_are_made,
           an_object_or_a_call, a_complete_answer_ends_before_min_tokens,
           what_cannot_be_enforced_is_refused, drafts_were_made], servers)
