package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"github.com/populationgenomics/postern-go/seccompbpf"
)

func main() {
	n, _ := strconv.Atoi(os.Args[1])
	f, _ := seccompbpf.Baseline().Compile()
	id := uint32(65534)
	ro := func(p string, optional bool) mounts.Op { return mounts.Bind{Source: p, Dest: p, Optional: optional} }
	os.Mkdir("/tmp/wk", 0o777)
	s := &nsexec.Spec{
		Path: "/usr/bin/true", Args: []string{"true"}, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "PWD=/workspace"}, Dir: "/workspace",
		Namespaces: nsexec.AllNew(), UID: &id, GID: &id, Init: true, NewSession: true, Seccomp: []seccompbpf.Filter{f},
		Mounts: &mounts.Tree{Ops: []mounts.Op{
			ro("/usr", false), ro("/lib", true), ro("/lib64", true), ro("/bin", true), ro("/sbin", true),
			mounts.Dir{Dest: "/etc"}, ro("/etc/ld.so.cache", true),
			mounts.Proc{Dest: "/proc", Masks: []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "kcore", "keys", "latency_stats", "timer_list", "sched_debug"}}, mounts.Dev{Dest: "/dev"},
			mounts.Tmpfs{Dest: "/tmp", Perm: mounts.Perm(0o1777)},
			mounts.Bind{Source: "/tmp/wk", Dest: "/workspace", Mode: mounts.ReadWrite},
		}},
	}
	for _, a := range os.Args[2:] {
		if strings.HasPrefix(a, "m") && a != "nomounts" {
			s.Path = "/nothing"
		}
		switch a {
		case "nonet":
			s.Namespaces.Net = nsexec.Share
		case "noseccomp":
			s.Seccomp = nil
		case "nomounts":
			s.Mounts = nil
			s.Path = "/usr/bin/true"
			s.Dir = ""
		case "m0":
			s.Mounts.Ops = s.Mounts.Ops[len(s.Mounts.Ops)-1:]
		case "m1":
			s.Mounts.Ops = append(s.Mounts.Ops[:7:7], s.Mounts.Ops[10:]...)
		case "m2":
			s.Mounts.Ops = append(s.Mounts.Ops[:8:8], s.Mounts.Ops[10:]...)
		case "m2n":
			p := s.Mounts.Ops[7].(mounts.Proc)
			p.Masks = nil
			s.Mounts.Ops[7] = p
			s.Mounts.Ops = append(s.Mounts.Ops[:8:8], s.Mounts.Ops[10:]...)
		case "noinit":
			s.Init = false
		case "noipc":
			s.Namespaces.IPC = nsexec.Share
		case "nouser":
			s.Namespaces.User = nsexec.Share
			s.UID, s.GID = nil, nil
		}
	}
	var starts, waits []time.Duration
	for range n {
		t0 := time.Now()
		p, err := nsexec.Start(s)
		if err != nil {
			panic(err)
		}
		t1 := time.Now()
		if st, _ := p.Wait(context.Background()); st.ExitCode != 0 && st.ExitCode != 127 {
			panic(st.ExitCode)
		}
		starts = append(starts, t1.Sub(t0))
		waits = append(waits, time.Since(t1))
	}
	slices.Sort(starts)
	slices.Sort(waits)
	fmt.Println(os.Args[2:], "start", starts[n/2], "wait", waits[n/2], "sum", starts[n/2]+waits[n/2])
}
