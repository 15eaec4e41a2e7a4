package grpchatch

import (
	"context"
	_ "embed"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	postern "github.com/populationgenomics/postern-go"
	pb "github.com/populationgenomics/postern-go/examples/greeter/greeterpb"
	"github.com/populationgenomics/postern-go/hatch"
	"github.com/populationgenomics/postern-go/internal/testutil"
)

//go:embed testdata/client.py
var client string

// inSandbox returns a sandbox of the virtual environment, and the stubs, whose
// guest reaches a hatch. The stubs are made for the test by its first user.
func inSandbox(t *testing.T, venv, stubs string, h hatch.Hatch) *postern.Sandbox {
	t.Helper()
	profile, err := postern.Profile{StubDir: stubs}.WithVenv(venv)
	if err != nil {
		t.Fatal(err)
	}
	s, err := postern.New(profile, postern.WithHatch(h))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

const stubsEnv = "POSTERN_TEST_STUBS"

// stubsFor makes the Python stubs where every user can read them.
func stubsFor(t *testing.T, venv string) string {
	t.Helper()
	if dir := os.Getenv(stubsEnv); dir != "" {
		return dir
	}
	dir, err := os.MkdirTemp("/tmp", "greeter-stubs-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, exec.Command(filepath.Join(venv, "bin", "python"), "-m", "grpc_tools.protoc", "-I../../examples/greeter/greeterpb",
		"--python_out="+dir, "--grpc_python_out="+dir, "greeter.proto"))
	t.Setenv(stubsEnv, dir)
	return dir
}

// newServedHatch is newHatch without its check for leaks, which several hatches
// in one test would disturb.
func newServedHatch(t *testing.T, cfg Config) (*Hatch, *servicer) {
	t.Helper()
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	s := new(servicer)
	pb.RegisterGreeterServer(h, s)
	return h, s
}

// Promises 178, 190 to 194, 197: a Python guest with generated stubs and with
// raw bytes, in a sandbox, calls every kind of method, and what is not
// allowed is denied in these words.
func TestPythonGuestInASandbox(t *testing.T) {
	venv := testutil.Venv(t)
	stubs := stubsFor(t, venv)
	testutil.EachUser(t, func(t *testing.T) {
		h, _ := newServedHatch(t, Config{Allow: everyMethod})
		result, err := inSandbox(t, venv, stubs, h).RunPython(context.Background(), client)
		if err != nil || !result.OK() {
			t.Fatalf("%v, %d: %s%s", err, result.ExitCode, result.Stdout, result.Stderr)
		}
		var got any
		if err := json.Unmarshal(result.Stdout, &got); err != nil {
			t.Fatal(err)
		}
		denied := func(method string) any {
			return []any{"PERMISSION_DENIED", method + " is not on the hatch allowlist"}
		}
		want := map[string]any{
			"unary":            "Hello Ada",
			"server streaming": []any{"Hello Ada", "Hello Ada", "Hello Ada"},
			"client streaming": "Hello Ada, Grace",
			"bidirectional":    []any{"Hello Ada", "Hello Grace"},
			"large":            float64(len("Hello ") + 3<<20),
			"denied": map[string]any{
				"unary":            denied("/other.Service/Method"),
				"server streaming": denied("/other.Service/Method"),
				"client streaming": denied("/other.Service/Method"),
				"bidirectional":    denied("/other.Service/Method"),
				"malformed":        denied("/malformed"),
			},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("what the guest saw (-want +got):\n%s", diff)
		}
	})
}

const deniedClient = `
import os, grpc, greeter_pb2, greeter_pb2_grpc
name = greeter_pb2.HelloRequest(name='Ada')
with grpc.insecure_channel('unix:' + os.environ['POSTERN_HATCH']) as channel:
    stub = greeter_pb2_grpc.GreeterStub(channel)
    print(stub.SayHello(name, timeout=30).message)
    for call in (lambda: list(stub.SayHelloMany(greeter_pb2.HelloManyRequest(name='Ada', count=1), timeout=30)),
                 lambda: stub.SayHelloToAll(iter([name]), timeout=30), lambda: list(stub.Chat(iter([name]), timeout=30))):
        try:
            call()
        except grpc.RpcError as error:
            print(error.code().name, error.details())
`

// Promises 192, 193, 194: methods that are registered but not listed.
func TestRegisteredButNotListedInASandbox(t *testing.T) {
	venv := testutil.Venv(t)
	stubs := stubsFor(t, venv)
	testutil.EachUser(t, func(t *testing.T) {
		h, s := newServedHatch(t, Config{Allow: []string{pb.Greeter_SayHello_FullMethodName}})
		result, err := inSandbox(t, venv, stubs, h).RunPython(context.Background(), deniedClient)
		want := "Hello Ada\n"
		for _, method := range []string{pb.Greeter_SayHelloMany_FullMethodName, pb.Greeter_SayHelloToAll_FullMethodName, pb.Greeter_Chat_FullMethodName} {
			want += "PERMISSION_DENIED " + method + " is not on the hatch allowlist\n"
		}
		if err != nil || string(result.Stdout) != want {
			t.Errorf("%v: %s%s\nwant %s", err, result.Stdout, result.Stderr, want)
		}
		if n := s.entered.Load(); n != 1 {
			t.Errorf("the servicer was entered %d times, want 1", n)
		}
	})
}

const networkClient = `
import os, socket
for family, address in ((socket.AF_INET, ('192.0.2.1', 80)), (socket.AF_INET6, ('2001:db8::1', 80)), (socket.AF_INET, ('127.0.0.1', PORT))):
    try:
        with socket.socket(family, socket.SOCK_STREAM) as s:
            s.settimeout(30)
            s.connect(address)
            print('connected')
    except OSError as error:
        print(error.strerror)
print(sorted(os.listdir('/sys/class/net')) if os.path.exists('/sys/class/net') else 'no /sys')
print(os.environ['POSTERN_HATCH'], 'POSTERN_CONNECT' in os.environ)
`

// The hatch is the only way out: a guest that has one has no network, and not
// even the host's loopback, on which the control listens.
func TestNoNetworkBesideTheHatch(t *testing.T) {
	venv := testutil.Venv(t)
	stubs := stubsFor(t, venv)
	testutil.EachUser(t, func(t *testing.T) {
		l, port := listenLoopback(t)
		code := strings.ReplaceAll(networkClient, "PORT", port)
		h, _ := newServedHatch(t, Config{Allow: everyMethod})
		result, err := inSandbox(t, venv, stubs, h).RunPython(context.Background(), code)
		const want = "Network is unreachable\nNetwork is unreachable\nConnection refused\nno /sys\n/run/postern/hatch.sock False\n"
		if got := string(result.Stdout); err != nil || got != want {
			t.Errorf("%v: %s%s\nwant %s", err, got, result.Stderr, want)
		}
		// The control: the host itself does connect there.
		if c, err := l.dial(); err != nil {
			t.Errorf("nobody listens: %v", err)
		} else {
			c.Close()
		}
	})
}

type loopback struct{ net.Listener }

func (l loopback) dial() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }

func listenLoopback(t *testing.T) (loopback, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return loopback{l}, port
}
