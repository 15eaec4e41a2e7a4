// Command grpchatch measures what the gRPC hatch costs: unary calls through it,
// against the same calls to a bare gRPC server on a Unix socket. Rounds of the two
// alternate, so that both see the same machine, and the ratio is the median of
// those of the rounds. 1 is as fast as the bare server.
//
//	go run ./tests/bench/grpchatch [-rounds 30] [-calls 2000] [-clients 16]
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/populationgenomics/postern-go/examples/greeter/greeterpb"
	"github.com/populationgenomics/postern-go/hatch/grpchatch"
)

var (
	rounds  = flag.Int("rounds", 30, "rounds of each")
	calls   = flag.Int("calls", 2000, "calls per round")
	clients = flag.Int("clients", 16, "callers at a time, when calls per second are measured")
)

type servicer struct{ pb.UnimplementedGreeterServer }

func (servicer) SayHello(_ context.Context, in *pb.HelloRequest) (*pb.HelloReply, error) {
	return &pb.HelloReply{Message: "Hello " + in.Name}, nil
}

func main() {
	flag.Parse()
	if err := measure(); err != nil {
		log.Fatal(err)
	}
}

func measure() error {
	bare, stopBare, err := bareServer()
	if err != nil {
		return err
	}
	defer stopBare()
	hatched, stopHatch, err := hatchServer()
	if err != nil {
		return err
	}
	defer stopHatch()

	fmt.Printf("%d interleaved rounds of %d calls; medians\n\n", *rounds, *calls)
	fmt.Printf("%-28s %12s %12s %8s\n", "", "bare grpc-go", "gRPC hatch", "ratio")
	for _, row := range []struct {
		name, unit string
		callers    int
		value      func(perCall time.Duration) float64
	}{
		{"unary latency", "µs", 1, func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }},
		{fmt.Sprintf("calls, %d at a time", *clients), "1/s", *clients, func(d time.Duration) float64 { return 1 / d.Seconds() }},
	} {
		var a, b, ratios []float64
		for i := range *rounds + 1 {
			// Who goes first alternates too.
			order := []pb.GreeterClient{bare, hatched}
			if i%2 == 1 {
				slices.Reverse(order)
			}
			took := make(map[pb.GreeterClient]time.Duration)
			for _, client := range order {
				if took[client], err = perCall(client, row.callers); err != nil {
					return err
				}
			}
			if i == 0 {
				continue // warming up
			}
			a = append(a, row.value(took[bare]))
			b = append(b, row.value(took[hatched]))
			ratios = append(ratios, float64(took[bare])/float64(took[hatched]))
		}
		fmt.Printf("%-28s %12.1f %12.1f %8.3f\n", row.name+" ["+row.unit+"]", median(a), median(b), median(ratios))
	}
	return nil
}

// perCall makes the calls, from a number of callers, and returns the time taken
// divided by the number of calls.
func perCall(client pb.GreeterClient, callers int) (time.Duration, error) {
	each := max(*calls/callers, 1)
	errs := make([]error, callers)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range callers {
		wg.Go(func() {
			for range each {
				if _, errs[i] = client.SayHello(context.Background(), &pb.HelloRequest{Name: "Ada"}); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return elapsed / time.Duration(each*callers), nil
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

func bareServer() (pb.GreeterClient, func(), error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, nil, err
	}
	path := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, nil, err
	}
	server := grpc.NewServer()
	pb.RegisterGreeterServer(server, servicer{})
	go server.Serve(listener)
	client, err := dial(path)
	return client, func() {
		server.Stop()
		os.RemoveAll(dir)
	}, err
}

func hatchServer() (pb.GreeterClient, func(), error) {
	h, err := grpchatch.New(grpchatch.Config{Allow: []string{pb.Greeter_SayHello_FullMethodName}, Grace: -1})
	if err != nil {
		return nil, nil, err
	}
	pb.RegisterGreeterServer(h, servicer{})
	if _, err := h.Serve(); err != nil {
		return nil, nil, err
	}
	client, err := dial(h.SocketPath())
	return client, func() { h.Close() }, err
}

func dial(path string) (pb.GreeterClient, error) {
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return pb.NewGreeterClient(conn), nil
}
