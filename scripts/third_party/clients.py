"""Clients that are not ours, against a running gateway. Each check prints a line and ends with an
exit code other than 0 if something is wrong.

Usage: clients.py grpc|websocket|sse HOST:PORT

Tokens come from the environment: ANN and BOB, both of one tenant, allowed to do everything.
"""

import asyncio
import json
import os
import sys
import time

ADDRESS = sys.argv[2]
ANN, BOB = os.environ["ANN"], os.environ["BOB"]
LIMIT = 20.0


def check(condition, text):
    if not condition:
        raise SystemExit(f"wrong: {text}")


def rooms():
    """A room of its own for each run."""
    return f"third-party-{time.time_ns()}"


def headers(token):
    return {"authorization": f"Bearer {token}"}


# gRPC, with nothing but what reflection tells.

def grpc_by_reflection():
    import grpc
    import httpx
    from google.protobuf import descriptor_pool, message_factory
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
        ProtoReflectionDescriptorDatabase,
    )

    channel = grpc.insecure_channel(ADDRESS)
    database = ProtoReflectionDescriptorDatabase(channel)
    services = set(database.get_services())
    print("services:", ", ".join(sorted(services)))
    check("adsum.v1.Presence" in services, "no adsum.v1.Presence")
    check("grpc.health.v1.Health" in services, "no health service")
    pool = descriptor_pool.DescriptorPool(database)
    service = pool.FindServiceByName("adsum.v1.Presence")
    print("methods:", ", ".join(method.name for method in service.methods))

    def call(of, name, **fields):
        method = of.FindMethodByName(name) if hasattr(of, "FindMethodByName") else of.methods_by_name[name]
        request = message_factory.GetMessageClass(method.input_type)
        response = message_factory.GetMessageClass(method.output_type)
        path = f"/{of.full_name}/{name}"
        kind = channel.unary_stream if method.server_streaming else channel.unary_unary
        stub = kind(path, request_serializer=request.SerializeToString,
                    response_deserializer=response.FromString)
        message = request()
        for key, value in fields.items():
            if isinstance(value, list):
                for each in value:
                    getattr(message, key).add(**each)
            else:
                setattr(message, key, value)
        return stub(message, metadata=[("authorization", f"Bearer {BOB}")], timeout=LIMIT)

    health = pool.FindServiceByName("grpc.health.v1.Health")
    check(call(health, "Check", service="adsum.v1.Presence").status == 1, "not serving")

    room = rooms()
    beat = {"device": "py", "conn": 1, "kind": "web", "rooms": [room]}
    with httpx.Client(base_url=f"http://{ADDRESS}", headers=headers(ANN)) as http:
        stream = call(service, "Watch", topics=[{"topic": f"room:{room}"}])
        first = next(stream)
        check(first.WhichOneof("frame") == "presence_state", f"no state but {first}")
        check(http.post("/v1/heartbeat", json=beat).status_code == 200, "no beat")
        diff = next(frame for frame in stream if frame.WhichOneof("frame") == "presence_diff")
        check([item.user for item in diff.presence_diff.joins] == ["ann"], f"not ann: {diff}")
        stream.cancel()
        person = call(service, "Get", user="ann").person
        check(person.user == "ann" and person.status == 1, f"not online: {person}")
        check(http.delete("/v1/sessions/py").json() == {"closed": 1}, "no goodbye")
    print("gRPC by reflection: Get and Watch work")


# A WebSocket with JSON.

async def websocket():
    import websockets

    room = rooms()
    url = f"ws://{ADDRESS}/v1/ws"

    async def say(socket, **frame):
        await socket.send(json.dumps(frame))

    async def hear(socket, kind):
        while True:
            frame = json.loads(await asyncio.wait_for(socket.recv(), LIMIT))
            if frame["type"] == kind:
                return frame

    async with websockets.connect(url, subprotocols=["adsum.v1.json"]) as watcher:
        check(watcher.subprotocol == "adsum.v1.json", "another subprotocol")
        await say(watcher, type="hello", ref="1", token=BOB, watch=[{"topic": f"room:{room}"}])
        welcome = await hear(watcher, "welcome")
        check(welcome["ref"] == "1" and welcome["session"]["user"] == "bob", f"{welcome}")
        state = await hear(watcher, "presence_state")
        check(state["members"] == [] and state["offset"] == 1, f"{state}")
        async with websockets.connect(url, subprotocols=["adsum.v1.json"]) as actor:
            await say(actor, type="hello", token=ANN, device="py", conn=time.time_ns() // 1_000_000)
            await hear(actor, "welcome")
            await say(actor, type="join", ref="j", room=room, meta={"from": "python"})
            check((await hear(actor, "ack"))["ref"] == "j", "another ack")
            diff = await hear(watcher, "presence_diff")
            check(diff["joins"][0]["user"] == "ann", f"{diff}")
            check(diff["joins"][0]["meta"] == {"from": "python"}, f"{diff}")
            await say(actor, type="leave", ref="l")
            await hear(actor, "ack")
        diff = await hear(watcher, "presence_diff")
        check(diff["leaves"][0]["reason"] == "leave", f"{diff}")
    print("WebSocket: joins, watches, sees diffs")


# Server-Sent Events, as a browser reads them: with the token in the address.

def sse():
    import httpx

    room = rooms()
    base = f"http://{ADDRESS}"
    query = {"topic": f"room:{room}", "token": BOB}
    beat = {"device": "py-sse", "conn": 1, "kind": "web", "rooms": [room]}
    with httpx.stream("GET", f"{base}/v1/events", params=query, timeout=LIMIT) as response:
        check(response.status_code == 200, f"{response.status_code}")
        kind = response.headers["content-type"]
        check(kind.startswith("text/event-stream"), kind)
        seen, name = [], None
        for line in response.iter_lines():
            if line.startswith("event:"):
                name = line[6:].strip()
            elif line.startswith("data:"):
                seen.append((name, json.loads(line[5:])))
                if name == "presence_state":
                    done = httpx.post(f"{base}/v1/heartbeat", json=beat, headers=headers(ANN))
                    check(done.status_code == 200, done.text)
                elif seen[-1][1]["joins"]:
                    gone = httpx.delete(f"{base}/v1/sessions/py-sse", headers=headers(ANN))
                    check(gone.json() == {"closed": 1}, gone.text)
                else:
                    break
    names = [name for name, _ in seen]
    check(names == ["presence_state", "presence_diff", "presence_diff"], f"{names}")
    check(seen[1][1]["joins"][0]["user"] == "ann", f"{seen[1]}")
    check(seen[2][1]["leaves"][0]["reason"] == "leave", f"{seen[2]}")
    print("Server-Sent Events: state, join, leave")


match sys.argv[1]:
    case "grpc":
        grpc_by_reflection()
    case "websocket":
        asyncio.run(websocket())
    case "sse":
        sse()
    case other:
        raise SystemExit(f"unknown: {other}")
