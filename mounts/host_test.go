//go:build linux

package mounts_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

// What the host mounts later shows in a guest only with FollowHost. This runs
// in a mount namespace of its own, whose mounts are shared as a host's are.
func TestLaterHostMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		testutil.Missing(t, "only root can mount")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := guest.Run(t, &nsexec.Spec{
		Path: exe, Args: []string{exe}, Env: []string{guest.ProbeEnv(laterProbe), "TMPDIR=/tmp", "PATH=/usr/bin:/bin"},
		Namespaces: nsexec.Namespaces{Mount: nsexec.New}, Caps: nsexec.AllCaps, KeepCaps: true, AllowNewPrivs: true,
	})
	if want := "false true\ntrue true\n"; r.Out != want {
		t.Errorf("%q, want %q", r.Out, want)
	}
}

var laterProbe = guest.Probe("later mounts", func([]string) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")) // away from the real host
	must(unix.Mount("tmpfs", "/mnt", "tmpfs", 0, ""))
	must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""))
	for _, follow := range []bool{false, true} {
		must(os.MkdirAll("/mnt/later", 0o755))
		inR, inW, err := os.Pipe()
		must(err)
		outR, outW, err := os.Pipe()
		must(err)
		s := guest.Shell("echo up; read x; test -e /m/later/mark && echo true || echo false; read x", mounts.Bind{Source: "/mnt", Dest: "/m"})
		s.Mounts.FollowHost, s.Stdin, s.Stdout, s.Stderr = follow, inR, outW, outW
		p, err := nsexec.Start(s)
		must(err)
		outW.Close()
		out := bufio.NewReader(outR)
		out.ReadString('\n')
		must(unix.Mount("tmpfs", "/mnt/later", "tmpfs", 0, ""))
		must(os.WriteFile("/mnt/later/mark", nil, 0o644))
		fmt.Fprintln(inW, "look")
		got, err := out.ReadString('\n')
		must(err)
		// Nothing of the guest's comes the other way, and the host can
		// unmount what the guest does not see.
		mountinfo, err := os.ReadFile("/proc/self/mountinfo")
		must(err)
		clean := !strings.Contains(string(mountinfo), " /m ")
		fmt.Println(strings.TrimSpace(got), clean)
		must(unix.Unmount("/mnt/later", 0))
		inW.Close()
		p.Wait(context.Background())
		outR.Close()
	}
})
