"""Calls every method of greeter.Greeter through $POSTERN_HATCH, as a guest does.

Prints one line of JSON: what was answered to each kind of call, and how the
calls that must be denied ended.
"""

import json
import os

import grpc

import greeter_pb2
import greeter_pb2_grpc


def name(text):
    return greeter_pb2.HelloRequest(name=text)


def denied(call):
    try:
        call()
    except grpc.RpcError as error:
        return [error.code().name, error.details()]
    return ['OK', '']


with grpc.insecure_channel('unix:' + os.environ['POSTERN_HATCH']) as channel:
    stub = greeter_pb2_grpc.GreeterStub(channel)
    request = greeter_pb2.HelloManyRequest(name='Ada', count=3)
    answers = {
        'unary': stub.SayHello(name('Ada'), timeout=60).message,
        'server streaming': [r.message for r in stub.SayHelloMany(request, timeout=60)],
        'client streaming': stub.SayHelloToAll(map(name, ['Ada', 'Grace']), timeout=60).message,
        'bidirectional': [r.message for r in stub.Chat(map(name, ['Ada', 'Grace']), timeout=60)],
        'large': len(stub.SayHello(name('x' * (3 << 20)), timeout=60).message),
        'denied': {
            'unary': denied(lambda: channel.unary_unary('/other.Service/Method')(b'')),
            'server streaming': denied(lambda: list(channel.unary_stream('/other.Service/Method')(b''))),
            'client streaming': denied(lambda: channel.stream_unary('/other.Service/Method')(iter([b'', b'']))),
            'bidirectional': denied(lambda: list(channel.stream_stream('/other.Service/Method')(iter([b'', b''])))),
            'malformed': denied(lambda: channel.unary_unary('/malformed')(b'', timeout=60)),
        },
    }
print(json.dumps(answers))
