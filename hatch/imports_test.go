package hatch

import (
	"os/exec"
	"strings"
	"testing"
)

// A program without the gRPC hatch does not link gRPC.
func TestNoGRPC(t *testing.T) {
	for pkg, want := range map[string]bool{".": false, "./grpchatch": true} {
		out, err := exec.Command("go", "list", "-deps", pkg).Output()
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(out), "google.golang.org/grpc"); got != want {
			t.Errorf("%s links gRPC: %v, want %v", pkg, got, want)
		}
	}
}
