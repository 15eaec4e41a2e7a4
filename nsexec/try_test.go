//go:build linux

package nsexec

import (
	"context"
	"io"
	"os"
	"testing"
	"time"

	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/seccompbpf"
)

func hardened(t testing.TB, args ...string) *Spec {
	f, err := seccompbpf.Hardened().Compile()
	if err != nil {
		t.Fatal(err)
	}
	uid := uint32(65534)
	p := mounts.Perm(0o1777)
	return &Spec{
		Path: args[0], Args: args, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/workspace",
		Namespaces: AllNew(), UID: &uid, GID: &uid, Init: true, NewSession: true,
		Seccomp: []seccompbpf.Filter{f},
		Mounts: &mounts.Tree{Ops: []mounts.Op{
			mounts.Bind{Source: "/usr", Dest: "/usr"},
			mounts.Bind{Source: "/lib", Dest: "/lib", Optional: true},
			mounts.Bind{Source: "/lib64", Dest: "/lib64", Optional: true},
			mounts.Bind{Source: "/bin", Dest: "/bin", Optional: true},
			mounts.Bind{Source: "/sbin", Dest: "/sbin", Optional: true},
			mounts.Dir{Dest: "/etc"},
			mounts.Bind{Source: "/etc/ld.so.cache", Dest: "/etc/ld.so.cache", Optional: true},
			mounts.Proc{Dest: "/proc", Masks: []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "kcore", "keys", "latency_stats", "timer_list", "sched_debug"}},
			mounts.Dev{Dest: "/dev"},
			mounts.Tmpfs{Dest: "/tmp", Perm: p},
			mounts.Tmpfs{Dest: "/workspace", Perm: p},
		}},
	}
}

func TestTry(t *testing.T) {
	s := hardened(t, "sh", "-c", "id; ls / /dev; grep -e Cap -e Sec -e NoNew /proc/self/status; ls -la /proc/self/fd; cat /proc/self/mountinfo; ps ax; hostname; ip a; exit 7")
	if len(os.Getenv("X")) > 0 {
		e, _ := s.Explain()
		t.Log(e)
	}
	r, w, _ := os.Pipe()
	s.Stdout, s.Stderr = w, w
	p, err := Start(s)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	b, _ := io.ReadAll(r)
	st, err := p.Wait(context.Background())
	t.Log(string(b), st, err)
	s = hardened(t, "/usr/bin/true")
	var best time.Duration = 1e9
	n := 200
	t0 := time.Now()
	for range n {
		t1 := time.Now()
		p, err := Start(s)
		if err != nil {
			t.Fatal(err)
		}
		if st, _ := p.Wait(context.Background()); st.ExitCode != 0 {
			t.Fatal(st)
		}
		best = min(best, time.Since(t1))
	}
	t.Log(time.Since(t0)/time.Duration(n), best)
}
