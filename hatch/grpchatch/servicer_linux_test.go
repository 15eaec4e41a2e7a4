package grpchatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "github.com/populationgenomics/postern-go/examples/greeter/greeterpb"
	"github.com/populationgenomics/postern-go/hatch/internal/hatchtest"
)

var everyMethod = []string{
	pb.Greeter_SayHello_FullMethodName,
	pb.Greeter_SayHelloMany_FullMethodName,
	pb.Greeter_SayHelloToAll_FullMethodName,
	pb.Greeter_Chat_FullMethodName,
}

// servicer greets, and fails in the way that some names ask for.
type servicer struct {
	pb.UnimplementedGreeterServer
	entered atomic.Int64  // how many calls reached it
	hold    chan struct{} // if not nil, "wait" waits for it, whatever its context says
}

const secret = "/srv/secret"

func (s *servicer) greet(ctx context.Context, name string) (*pb.HelloReply, error) {
	switch name {
	case "panic":
		panic("forged\nlevel=ERROR " + secret)
	case "typed nil":
		return nil, (*nilError)(nil)
	case "error":
		return nil, errors.New("open " + secret + ":\nno")
	case "status":
		return nil, fmt.Errorf("wrapped: %w", status.Error(codes.NotFound, "no such person"))
	case "wait":
		if s.hold != nil {
			<-s.hold
		} else {
			<-ctx.Done()
		}
		return nil, fmt.Errorf("%s: %w", secret, context.Canceled)
	}
	return &pb.HelloReply{Message: "Hello " + name}, nil
}

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

func (s *servicer) SayHello(ctx context.Context, in *pb.HelloRequest) (*pb.HelloReply, error) {
	s.entered.Add(1)
	return s.greet(ctx, in.Name)
}

func (s *servicer) SayHelloMany(in *pb.HelloManyRequest, out grpc.ServerStreamingServer[pb.HelloReply]) error {
	s.entered.Add(1)
	for range in.Count {
		reply, err := s.greet(out.Context(), in.Name)
		if err != nil {
			return err
		}
		if err := out.Send(reply); err != nil {
			return err
		}
	}
	return nil
}

func (s *servicer) SayHelloToAll(stream grpc.ClientStreamingServer[pb.HelloRequest, pb.HelloReply]) error {
	s.entered.Add(1)
	var names []string
	for {
		in, err := stream.Recv()
		if err == io.EOF {
			return stream.SendAndClose(&pb.HelloReply{Message: "Hello " + strings.Join(names, ", ")})
		}
		if err != nil {
			return err
		}
		names = append(names, in.Name)
	}
}

func (s *servicer) Chat(stream grpc.BidiStreamingServer[pb.HelloRequest, pb.HelloReply]) error {
	s.entered.Add(1)
	for {
		in, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		reply, err := s.greet(stream.Context(), in.Name)
		if err != nil {
			return err
		}
		if err := stream.Send(reply); err != nil {
			return err
		}
	}
}

// newHatch makes a hatch with a servicer. The test must not leak from it.
func newHatch(t *testing.T, cfg Config) (*Hatch, *servicer) {
	t.Helper()
	hatchtest.NoLeaks(t)
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	s := new(servicer)
	pb.RegisterGreeterServer(h, s)
	return h, s
}

// serve opens the hatch until the end of the test.
func serve(t *testing.T, h *Hatch) {
	t.Helper()
	stop, err := h.Serve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
}

func dial(t *testing.T, h *Hatch, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient("unix:"+h.SocketPath(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// works fails the test unless the hatch serves a new client, as soon as it has
// seen the end of those that are gone.
func works(t *testing.T, h *Hatch) {
	t.Helper()
	conn := dial(t, h)
	defer conn.Close()
	var reply *pb.HelloReply
	var err error
	hatchtest.Eventually(t, "there is a turn for a new client", func() bool {
		reply, err = pb.NewGreeterClient(conn).SayHello(t.Context(), &pb.HelloRequest{Name: "again"})
		return status.Code(err) != codes.ResourceExhausted
	})
	if err != nil || reply.Message != "Hello again" {
		t.Errorf("the hatch does not work any more: %v, %v", reply, err)
	}
}
