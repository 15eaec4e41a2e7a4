//go:build linux

package nsexec_test

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

// printOutput runs a script in a guest, without a test at hand.
func printOutput(script string) {
	r, err := guest.Try(guest.Shell(script))
	if err != nil {
		panic(err)
	}
	fmt.Print(r.Out)
}

var spawnProbe = guest.Probe("spawn", func([]string) {
	signal.Ignore(unix.SIGUSR2)
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, unix.SIGUSR1)
	if os.Getenv("WITHOUT") == "clone3" {
		hide("clone3")
	}
	printOutput("sed -n 's/Sig\\(Ign\\|Cgt\\|Blk\\):\t/\\1 /p' /proc/self/status")
})

// Signals that the host ignores stay so, however its child is made.
func TestSpawnSignals(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for _, without := range []string{"", "clone3"} {
			got := host(t, spawnProbe, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "WITHOUT="+without) })
			if want := "Blk 0000000000000000\nIgn 0000000000000800\nCgt 0000000000000000"; got != want {
				t.Errorf("without %q:\n%s\nwant\n%s", without, got, want)
			}
		}
	})
}

var resetsProbe = guest.Probe("resets", func([]string) {
	signal.Ignore(unix.SIGUSR2)
	signal.Notify(make(chan os.Signal, 1), unix.SIGUSR1)
	fmt.Println(nsexec.ResetsWithoutClone3())
})

// A child that has the host's handlers sets those signals, and no others, to
// their default.
func TestResetsWithoutClone3(t *testing.T) {
	got := strings.Fields(strings.Trim(host(t, resetsProbe, nil), "[]"))
	has := map[string]bool{}
	for _, sig := range got {
		has[sig] = true
	}
	for sig, want := range map[unix.Signal]bool{unix.SIGUSR1: true, unix.SIGURG: true, unix.SIGUSR2: false, unix.SIGKILL: false} {
		if has[fmt.Sprint(int(sig))] != want {
			t.Errorf("%v is reset: %v, want %v", sig, !want, want)
		}
	}
}

var descriptorLimitProbe = guest.Probe("limit on descriptors", func([]string) {
	limit := func() { printOutput("ulimit -Sn; ulimit -Hn") }
	limit()
	limit()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 88, Max: 99}); err != nil {
		panic(err)
	}
	limit()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 98, Max: 98}); err != nil {
		panic(err)
	}
	limit()
})

// A guest has the limit on descriptors that the host was started with, though
// the runtime has raised it for the host, or that the host has set itself.
func TestDescriptorLimit(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		got := host(t, descriptorLimitProbe, func(cmd *exec.Cmd) {
			cmd.Args = []string{"sh", "-c", `ulimit -Sn 77; ulimit -Hn 111; exec "$0"`, cmd.Path}
			cmd.Path = "/bin/sh"
		})
		if want := "77\n111\n77\n111\n88\n99\n98\n98"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
