package postern

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
)

// What plain commands have in common is compiled once, and held until the
// sandbox is closed. Others are compiled for themselves.
func TestTemplates(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		s := sandbox(t, Profile{})
		run := func(want int, c Command) {
			t.Helper()
			r, err := s.RunCommand(t.Context(), c)
			if err != nil || r.ExitCode != 0 {
				t.Fatalf("%+v: %+v, %v", c, r, err)
			}
			if got := images(t); got != want {
				t.Errorf("after %+v the sandbox holds %d images, want %d", c, got, want)
			}
		}
		run(0, Python("print(1)"))
		run(1, Command{Args: []string{"true"}})
		run(1, Bash("exit 0"))
		run(1, Command{Args: []string{"env"}, Env: []string{"A=1"}})
		run(2, Command{Args: []string{"cat"}, Input: []byte("input")})
		run(2, Command{Args: []string{"cat"}, Input: []byte("other input")})
		// The first of a sandbox is launched from a spec, the second from what a template needs.
		again := sandbox(t, Profile{Env: []string{"OURS=1"}}, WithHatch(newEchoHatch(t, "")))
		var out [2]string
		for i := range out {
			r, err := again.RunCommand(t.Context(), Command{Args: []string{"sh", "-c", "env; pwd; echo $0"}, Env: []string{"A=1"}})
			if err != nil {
				t.Fatal(err)
			}
			out[i] = string(r.Stdout)
		}
		if out[0] != out[1] || !strings.Contains(out[0], "A=1\n") || !strings.Contains(out[0], "OURS=1\n") {
			t.Errorf("the same command has seen %q and then %q", out[0], out[1])
		}
		if err := errors.Join(again.Close(), s.Close()); err != nil {
			t.Error(err)
		}
		if got := images(t); got != 0 {
			t.Errorf("the closed sandbox holds %d images", got)
		}
	})
}

// images counts the launch images that this process has open.
func images(t *testing.T) (n int) {
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "/memfd:postern-stage") {
			n++
		}
	}
	return n
}
