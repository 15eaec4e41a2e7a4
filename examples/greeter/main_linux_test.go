package main

import (
	"os"
	"os/exec"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
)

const runExample = "POSTERN_RUN_EXAMPLE"

func TestMain(m *testing.M) {
	// In the sandbox there is no such variable, but the argument of a guest.
	if os.Getenv(runExample) != "" || len(os.Args) == 2 && os.Args[1] == "guest" {
		main()
		return
	}
	os.Exit(testutil.Main(m))
}

// Promise 289.
func TestExample(t *testing.T) {
	venv := testutil.Venv(t)
	testutil.EachUser(t, func(t *testing.T) {
		const want = `== Go guest
SayHello: Hello Ada
SayHelloMany: Hello Ada, Hello Ada
SayHelloToAll: PermissionDenied /greeter.Greeter/SayHelloToAll is not on the hatch allowlist
Chat: Hello Ada, Hello Grace
network: network is unreachable
== Python guest
SayHello: Hello Ada
SayHelloMany: Hello Ada, Hello Ada
SayHelloToAll: PERMISSION_DENIED /greeter.Greeter/SayHelloToAll is not on the hatch allowlist
Chat: Hello Ada, Hello Grace
network: Network is unreachable
`
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(exe, "-venv", venv)
		cmd.Env = append(os.Environ(), runExample+"=1")
		if got, err := cmd.CombinedOutput(); err != nil || string(got) != want {
			t.Errorf("%v, it printed:\n%s\nwant:\n%s", err, got, want)
		}
	})
}
