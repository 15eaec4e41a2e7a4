package grpchatch

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/populationgenomics/postern-go/examples/greeter/greeterpb"
	"github.com/populationgenomics/postern-go/hatch"
	"github.com/populationgenomics/postern-go/hatch/internal/hatchtest"
)

func TestManyRuns(t *testing.T) {
	h, _ := newHatch(t, Config{Allow: everyMethod})
	for range 20 {
		first, err := h.Serve()
		if err != nil {
			t.Fatal(err)
		}
		second, err := h.Serve()
		if err != nil {
			t.Fatal(err)
		}
		works(t, h)
		first()
		works(t, h)
		second()
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if err := h.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	if _, err := h.Serve(); !errors.Is(err, hatch.ErrClosed) {
		t.Errorf("Serve after Close: %v", err)
	}
	if _, err := os.Lstat(filepath.Dir(h.SocketPath())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of the socket: %v", err)
	}
}

func TestCloseWithoutServe(t *testing.T) {
	h, _ := newHatch(t, Config{Allow: everyMethod})
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

func TestCallsEndWithTheLastRun(t *testing.T) {
	h, s := newHatch(t, Config{Allow: everyMethod})
	stop, err := h.Serve()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	client := pb.NewGreeterClient(dial(t, h))
	go func() {
		_, err := client.SayHello(t.Context(), &pb.HelloRequest{Name: "wait"})
		ended <- err
	}()
	hatchtest.Eventually(t, "the call arrives", func() bool { return s.entered.Load() == 1 })
	stop()
	if err := <-ended; status.Code(err) != codes.Unavailable {
		t.Errorf("the call ended with %v", err)
	}
	hatchtest.Eventually(t, "the servicer is done", func() bool { return len(h.calls) == 0 })
}

func TestCloseLetsCallsEnd(t *testing.T) {
	h, _ := newHatch(t, Config{Allow: everyMethod, Grace: time.Hour})
	serve(t, h)
	chat, err := pb.NewGreeterClient(dial(t, h)).Chat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	say := func(name string) {
		t.Helper()
		if err := chat.Send(&pb.HelloRequest{Name: name}); err != nil {
			t.Error(err)
		}
		if _, err := chat.Recv(); err != nil {
			t.Error(err)
		}
	}
	say("before")
	closed := make(chan error)
	go func() { closed <- h.Close() }()
	hatchtest.Eventually(t, "the socket is gone", func() bool {
		_, err := os.Lstat(h.SocketPath())
		return err != nil
	})
	say("while closing")
	chat.CloseSend()
	if _, err := chat.Recv(); err != io.EOF {
		t.Error(err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestCloseDoesNotHang(t *testing.T) {
	for name, grace := range map[string]time.Duration{"after the grace": 20 * time.Millisecond, "at once": -1} {
		t.Run(name, func(t *testing.T) {
			h, s := newHatch(t, Config{Allow: everyMethod, Grace: grace})
			s.hold = make(chan struct{})
			t.Cleanup(func() { close(s.hold) }) // or it is a leak
			serve(t, h)
			conn := dial(t, h)
			client := pb.NewGreeterClient(conn)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error)
			go func() {
				_, err := client.SayHello(ctx, &pb.HelloRequest{Name: "wait"})
				ended <- err
			}()
			hatchtest.Eventually(t, "the call arrives", func() bool { return s.entered.Load() == 1 })
			if err := h.Close(); err != nil {
				t.Error(err)
			}
			if err := <-ended; status.Code(err) != codes.Unavailable {
				t.Errorf("the call ended with %v", err)
			}
		})
	}
}
