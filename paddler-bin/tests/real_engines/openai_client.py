#!/usr/bin/env python3
"""What does an unchanged OpenAI client make of the gateway?

    openai_client.py answers GATEWAY DIRECT_CHAT DIRECT_EMBEDDINGS
    openai_client.py errors GATEWAY GATEWAY_WITH_KEYS KEY GATEWAY_WITHOUT_QUEUE

All but KEY are URLs without /v1. The last gateway has one upstream, with 4 slots, and lets nobody wait.
Prints `ok WHAT` for each thing that holds; an exception ends it.
"""
import sys
import time

import openai

CHAT = dict(messages=[{"role": "user", "content": "Say something."}], temperature=0, seed=7, max_tokens=24)


def client(url, key="none"):
    # Without retries: what went wrong is to be seen.
    return openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0, timeout=120)


def text(stream):
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def raised(kind, status, call):
    """The error that the call raises, which must be of this kind."""
    try:
        call()
    except openai.APIStatusError as error:
        assert type(error) is kind and error.status_code == status, repr(error)
        return error
    raise AssertionError("nothing was raised where %s should be" % kind.__name__)


def begun(gateway):
    """A long stream. Until the next report, one that was made just as another stream began may count that one twice."""
    for _ in range(100):
        try:
            return gateway.chat.completions.create(model="tiny-b", stream=True, **dict(CHAT, max_tokens=3900))
        except openai.RateLimitError:
            time.sleep(0.1)
    raise AssertionError("there is never a free slot")


def answers(gateway, direct_chat, direct_embeddings):
    ours, chat, embeddings = client(gateway), client(direct_chat), client(direct_embeddings)

    expected = chat.chat.completions.create(model="tiny-a", **CHAT).choices[0].message.content
    answer = ours.chat.completions.create(model="tiny-a", **CHAT)
    assert answer.choices[0].message.content == expected and answer.usage.completion_tokens == 24, answer
    print("ok chat")

    assert text(ours.chat.completions.create(model="tiny-a", stream=True, **CHAT)) == expected
    print("ok stream")

    asked = dict(model="tiny-e", input=["one thing", "another"])
    pairs = zip(ours.embeddings.create(**asked).data, embeddings.embeddings.create(**asked).data, strict=True)
    for got, wanted in pairs:
        assert max(abs(a - b) for a, b in zip(got.embedding, wanted.embedding, strict=True)) < 1e-4
    print("ok embeddings")

    assert {model.id for model in ours.models.list()} == {"tiny-a", "tiny-b", "tiny-e"}
    print("ok models")


def errors(gateway, with_keys, key, without_queue):
    ours = client(gateway)

    error = raised(openai.NotFoundError, 404, lambda: ours.chat.completions.create(model="nobody", **CHAT))
    assert "nobody" in error.body["message"] and "tiny-a" in error.body["message"], error.body
    print("ok unknown model")

    # The gateway's own finding: two readings of which model is meant.
    two = dict(extra_body={"Model": "tiny-b"})
    raised(openai.BadRequestError, 400, lambda: ours.chat.completions.create(model="tiny-a", **CHAT, **two))
    # The engine's, which is passed on.
    bad = dict(CHAT, messages=5)
    raised(openai.BadRequestError, 400, lambda: ours.chat.completions.create(model="tiny-a", **bad))
    print("ok bad body")

    raised(openai.AuthenticationError, 401, lambda: client(with_keys, "wrong").models.list())
    assert client(with_keys, key).chat.completions.create(model="tiny-a", **CHAT).choices
    print("ok keys")

    full = client(without_queue)
    streams = [begun(full) for _ in range(4)]
    first = [next(iter(stream)) for stream in streams]
    error = raised(openai.RateLimitError, 429, lambda: full.chat.completions.create(model="tiny-b", **CHAT))
    assert int(error.response.headers["retry-after"]) >= 1 and len(first) == 4
    for stream in streams:
        stream.close()
    print("ok full")


if __name__ == "__main__":
    {"answers": answers, "errors": errors}[sys.argv[1]](*sys.argv[2:])
