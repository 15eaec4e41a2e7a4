"""The Python guest of the greeter example."""

import os
import socket

import grpc

import greeter_pb2
import greeter_pb2_grpc


def name(text):
    return greeter_pb2.HelloRequest(name=text)


with grpc.insecure_channel('unix:' + os.environ['POSTERN_HATCH']) as channel:
    stub = greeter_pb2_grpc.GreeterStub(channel)
    many = greeter_pb2.HelloManyRequest(name='Ada', count=2)
    print('SayHello:', stub.SayHello(name('Ada'), timeout=30).message)
    print('SayHelloMany:', ', '.join(r.message for r in stub.SayHelloMany(many, timeout=30)))
    try:
        stub.SayHelloToAll(map(name, ['Ada', 'Grace']), timeout=30)
    except grpc.RpcError as error:
        print('SayHelloToAll:', error.code().name, error.details())
    print('Chat:', ', '.join(r.message for r in stub.Chat(map(name, ['Ada', 'Grace']), timeout=30)))

try:
    socket.create_connection(('192.0.2.1', 80), timeout=5)
except OSError as error:
    print('network:', error.strerror)
