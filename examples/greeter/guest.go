package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "github.com/populationgenomics/postern-go/examples/greeter/greeterpb"
)

// guest is the Go guest: what this program does when it runs in the sandbox.
func guest() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := grpc.NewClient("unix:"+os.Getenv("POSTERN_HATCH"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	client := pb.NewGreeterClient(conn)

	reply, err := client.SayHello(ctx, &pb.HelloRequest{Name: "Ada"})
	if err != nil {
		return err
	}
	fmt.Println("SayHello:", reply.Message)

	many, err := client.SayHelloMany(ctx, &pb.HelloManyRequest{Name: "Ada", Count: 2})
	if err != nil {
		return err
	}
	fmt.Print("SayHelloMany: ")
	if err := printAll(many.Recv); err != nil {
		return err
	}

	all, err := client.SayHelloToAll(ctx)
	if err == nil {
		_, err = all.CloseAndRecv()
	}
	fmt.Println("SayHelloToAll:", status.Convert(err).Code(), status.Convert(err).Message())

	chat, err := client.Chat(ctx)
	if err != nil {
		return err
	}
	for _, name := range []string{"Ada", "Grace"} {
		if err := chat.Send(&pb.HelloRequest{Name: name}); err != nil {
			return err
		}
	}
	if err := chat.CloseSend(); err != nil {
		return err
	}
	fmt.Print("Chat: ")
	if err := printAll(chat.Recv); err != nil {
		return err
	}

	_, err = net.DialTimeout("tcp", "192.0.2.1:80", 5*time.Second)
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		err = errno
	}
	fmt.Println("network:", err)
	return nil
}

func printAll(recv func() (*pb.HelloReply, error)) error {
	for separator := ""; ; separator = ", " {
		reply, err := recv()
		if err == io.EOF {
			fmt.Println()
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Print(separator, reply.Message)
	}
}
