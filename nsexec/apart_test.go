//go:build linux

package nsexec_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

// TestGuestHasTheHostsCPUs launches from a thread that may use all CPUs and from
// one that may use a single one: the launch moves its processes between CPUs,
// and the guest must be free to use the host's and no others.
func TestGuestHasTheHostsCPUs(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var all unix.CPUSet
		if err := unix.SchedGetaffinity(0, &all); err != nil {
			t.Fatal(err)
		}
		defer unix.SchedSetaffinity(0, &all)
		masks := []unix.CPUSet{all}
		for cpu := range 64 {
			if all.IsSet(cpu) && all.Count() > 1 {
				var one unix.CPUSet
				one.Set(cpu)
				masks = append(masks, one)
				but := all
				but.Clear(cpu)
				masks = append(masks, but)
			}
		}
		for _, mask := range masks {
			if err := unix.SchedSetaffinity(0, &mask); err != nil {
				t.Fatal(err)
			}
			want := cpusAllowed(t, fmt.Sprintf("/proc/self/task/%d/status", unix.Gettid()))
			for range 5 { // on whichever CPU it begins
				if got := guestsCPUs(t); got != want {
					t.Errorf("the host may use CPUs %s, its guest %s", want, got)
				}
			}
		}
	})
}

func guestsCPUs(t *testing.T) string {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s := hardened(t, "/bin/cat", "/proc/self/status")
	s.Stdout = w
	p, err := nsexec.Start(s)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := out.ReadFrom(r); err != nil {
		t.Fatal(err)
	}
	if st, err := p.Wait(context.Background()); err != nil || st.ExitCode != 0 {
		t.Fatal(st, err)
	}
	return allowed(t, out.String())
}

func cpusAllowed(t *testing.T, path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return allowed(t, string(b))
}

func allowed(t *testing.T, status string) string {
	_, list, found := strings.Cut(status, "Cpus_allowed_list:")
	if !found {
		t.Fatalf("no list of CPUs in %q", status)
	}
	list, _, _ = strings.Cut(list, "\n")
	return strings.TrimSpace(list)
}
