//go:build linux

package nsexec_test

import (
	"os"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"github.com/populationgenomics/postern-go/seccompbpf"
)

func TestMain(m *testing.M) {
	guest.Main()
	os.Exit(testutil.Main(m))
}

func ptr[T any](v T) *T { return &v }

// hardened is the whole profile: every namespace, mask and filter there is.
func hardened(t testing.TB, args ...string) *nsexec.Spec {
	t.Helper()
	s := guest.Spec(args)
	s.Seccomp = []seccompbpf.Filter{seccompbpf.HardenedFilter()}
	s.Dir = "/workspace"
	s.Mounts = &mounts.Tree{Ops: append(guest.System(),
		mounts.Proc{Dest: "/proc", Masks: []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "kcore", "keys", "latency_stats", "timer_list", "sched_debug"}},
		mounts.Dev{Dest: "/dev"},
		mounts.Tmpfs{Dest: "/tmp", Perm: mounts.Perm(0o1777)},
		mounts.Tmpfs{Dest: "/workspace", Perm: mounts.Perm(0o1777)},
	)}
	return s
}
