package main

import (
	"slices"

	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"github.com/populationgenomics/postern-go/seccompbpf"
)

var masks = []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "kcore", "keys", "latency_stats", "timer_list", "sched_debug"}

// referenceArgs is the profile of the Python original in bwrap's words, with
// the seccomp filter on descriptor 3.
func referenceArgs(work string) []string {
	args := []string{
		"--unshare-all", "--unshare-user", "--unshare-cgroup", "--new-session", "--cap-drop", "ALL", "--die-with-parent",
		"--clearenv", "--as-pid-1", "--uid", "65534", "--gid", "65534", "--ro-bind", "/usr", "/usr",
	}
	for _, d := range []string{"/lib", "/lib64", "/bin", "/sbin", "/etc/ld.so.cache"} {
		args = append(args, "--ro-bind-try", d, d)
	}
	args = append(args, "--proc", "/proc", "--dev", "/dev")
	for _, m := range masks {
		args = append(args, "--ro-bind-try", "/proc/"+m, "/proc/"+m)
	}
	return append(args, "--perms", "1777", "--tmpfs", "/tmp", "--bind", work, "/workspace", "--chdir", "/workspace",
		"--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin", "--seccomp", "3", "--")
}

// withoutPID1 leaves bwrap's own init at PID 1, which the comparison of memory
// is about.
func withoutPID1(args []string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "--as-pid-1" })
}

// spec is the same profile, with an init.
func (b *bench) spec(args ...string) *nsexec.Spec {
	id := uint32(65534)
	ro := func(p string, optional bool) mounts.Op {
		return mounts.Bind{Source: p, Dest: p, Optional: optional}
	}
	return &nsexec.Spec{
		Path: args[0], Args: args, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "PWD=/workspace"}, Dir: "/workspace",
		Namespaces: nsexec.AllNew(), UID: &id, GID: &id, Init: true, NewSession: true, Seccomp: []seccompbpf.Filter{b.filter},
		Mounts: &mounts.Tree{Ops: []mounts.Op{
			ro("/usr", false), ro("/lib", true), ro("/lib64", true), ro("/bin", true), ro("/sbin", true),
			mounts.Dir{Dest: "/etc"}, ro("/etc/ld.so.cache", true),
			mounts.Proc{Dest: "/proc", Masks: masks}, mounts.Dev{Dest: "/dev"},
			mounts.Tmpfs{Dest: "/tmp", Perm: mounts.Perm(0o1777)},
			mounts.Bind{Source: b.work, Dest: "/workspace", Mode: mounts.ReadWrite},
		}},
	}
}
