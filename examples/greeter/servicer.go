package main

import (
	"context"
	"errors"
	"io"
	"strings"

	"google.golang.org/grpc"

	pb "github.com/populationgenomics/postern-go/examples/greeter/greeterpb"
)

// servicer is what the host does for its guests.
type servicer struct{ pb.UnimplementedGreeterServer }

func greet(name string) *pb.HelloReply { return &pb.HelloReply{Message: "Hello " + name} }

func (servicer) SayHello(_ context.Context, in *pb.HelloRequest) (*pb.HelloReply, error) {
	return greet(in.Name), nil
}

func (servicer) SayHelloMany(in *pb.HelloManyRequest, out grpc.ServerStreamingServer[pb.HelloReply]) error {
	for range in.Count {
		if err := out.Send(greet(in.Name)); err != nil {
			return err
		}
	}
	return nil
}

func (servicer) SayHelloToAll(stream grpc.ClientStreamingServer[pb.HelloRequest, pb.HelloReply]) error {
	var names []string
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(greet(strings.Join(names, ", ")))
		}
		if err != nil {
			return err
		}
		names = append(names, in.Name)
	}
}

func (servicer) Chat(stream grpc.BidiStreamingServer[pb.HelloRequest, pb.HelloReply]) error {
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(greet(in.Name)); err != nil {
			return err
		}
	}
}
