//go:build linux

package main

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/populationgenomics/postern-go/pidone"
	"github.com/populationgenomics/postern-go/profile"
	"github.com/populationgenomics/postern-go/seccompbpf"
)

const hardenedUsage = `usage: postern-launch --hardened [OPTION...] [--] COMMAND [ARG...]

Runs COMMAND behind postern's whole wall: no network, a file system of its own,
no capabilities, a system call filter. It can write to /workspace and /tmp.
The exit status is COMMAND's, 128+N if signal N ended it, 127 or 126 if it is
not found or not executable, and 125 if postern-launch itself failed.

  --workspace DIR         host directory to have at /workspace (default: one in
                          memory, gone at the end)
  --rootfs DIR            directory to use for /usr, /lib, /bin instead of the host's
  --venv DIR              have this Python virtual environment, first on PATH
  --ro-bind HOST GUEST    have this file or directory too, read-only
  --ro-bind-try HOST GUEST  the same, skipped if HOST does not exist
  --bind HOST GUEST       the same, writable: a weaker wall
  --stubs DIR             directory to put first on PYTHONPATH
  --setenv NAME VALUE     set an environment variable
  --etc                   have an /etc with passwd, group, hosts and nsswitch.conf
  --rlimit NAME=SOFT[:HARD]  limit a resource, named as by prlimit(1); numbers
                          or "unlimited" (default: nproc=1024)
  --tmp-size BYTES        room in /tmp and in a workspace in memory
  --uid N, --gid N        who COMMAND sees itself as (default 65534)
  --host-uid N, --host-gid N  who runs the whole launch, if root asks
  --network-namespace NAME  join this network namespace: a weaker wall
  --seccomp POLICY        hardened (default), baseline, or off: a weaker wall
  -t, --terminal          give COMMAND a terminal of its own, connected to this one
  --explain               print the launch as a list of system calls instead
  --verify                make one trivial launch and say whether it works
  --help                  print this
`

// A hardenedCall is the command line of postern-launch --hardened.
type hardenedCall struct {
	profile                         profile.Profile
	limits                          []pidone.Limit
	command                         []string
	terminal, explain, verify, help bool
}

// sizeless is the room of a workspace in memory that has no size of its own.
const sizeless = profile.DefaultTmpSize

func parseHardened(args []string) (*hardenedCall, error) {
	c := &hardenedCall{}
	p := &c.profile
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		opt := args[0]
		args = args[1:]
		if opt == "--" {
			break
		}
		i := slices.IndexFunc(hardenedOptions, func(o hardenedOption) bool { return o.name == opt })
		if i < 0 {
			return nil, fmt.Errorf("unknown option %s; see postern-launch --hardened --help", opt)
		}
		f := hardenedOptions[i]
		if len(args) < f.words {
			return nil, fmt.Errorf("%s takes %d argument(s), and %d follow", opt, f.words, len(args))
		}
		if err := f.set(c, args[:f.words]); err != nil {
			return nil, fmt.Errorf("%s: %w", opt, err)
		}
		args = args[f.words:]
	}
	c.command = args
	if p.Workspace == "" {
		p.WorkspaceSize = sizeless
		if p.TmpSize > 0 {
			p.WorkspaceSize = p.TmpSize
		}
	}
	if len(args) == 0 && !c.verify && !c.help {
		return nil, fmt.Errorf("no command; see postern-launch --hardened --help")
	}
	return c, nil
}

type hardenedOption struct {
	name  string
	words int // that follow it
	set   func(c *hardenedCall, v []string) error
}

var hardenedOptions = []hardenedOption{
	{"--workspace", 1, func(c *hardenedCall, v []string) (err error) { c.profile.Workspace, err = absolute(v[0]); return }},
	{"--rootfs", 1, func(c *hardenedCall, v []string) (err error) { c.profile.Rootfs, err = absolute(v[0]); return }},
	{"--stubs", 1, func(c *hardenedCall, v []string) (err error) { c.profile.StubDir, err = absolute(v[0]); return }},
	{"--venv", 1, setVenv},
	{"--ro-bind", 2, func(c *hardenedCall, v []string) error { return addBind(&c.profile.RequiredBinds, v) }},
	{"--ro-bind-try", 2, func(c *hardenedCall, v []string) error { return addBind(&c.profile.ReadOnlyBinds, v) }},
	{"--bind", 2, func(c *hardenedCall, v []string) error { return addBind(&c.profile.WritableBinds, v) }},
	{"--setenv", 2, func(c *hardenedCall, v []string) error {
		c.profile.Env = append(c.profile.Env, v[0]+"="+v[1])
		return nil
	}},
	{"--etc", 0, func(c *hardenedCall, _ []string) error { c.profile.Etc = &profile.Etc{}; return nil }},
	{"--rlimit", 1, addLimit},
	{"--tmp-size", 1, func(c *hardenedCall, v []string) (err error) { c.profile.TmpSize, err = positive(v[0]); return }},
	{"--uid", 1, func(c *hardenedCall, v []string) error { return setID(&c.profile.GuestUID, v[0]) }},
	{"--gid", 1, func(c *hardenedCall, v []string) error { return setID(&c.profile.GuestGID, v[0]) }},
	{"--host-uid", 1, func(c *hardenedCall, v []string) (err error) { c.profile.HostUID, err = id(v[0]); return }},
	{"--host-gid", 1, func(c *hardenedCall, v []string) (err error) { c.profile.HostGID, err = id(v[0]); return }},
	{"--network-namespace", 1, func(c *hardenedCall, v []string) error {
		c.profile.Network.Name = v[0]
		return nil
	}},
	{"--seccomp", 1, setSeccomp},
	{"-t", 0, func(c *hardenedCall, _ []string) error { c.terminal = true; return nil }},
	{"--terminal", 0, func(c *hardenedCall, _ []string) error { c.terminal = true; return nil }},
	{"--explain", 0, func(c *hardenedCall, _ []string) error { c.explain = true; return nil }},
	{"--verify", 0, func(c *hardenedCall, _ []string) error { c.verify = true; return nil }},
	{"--help", 0, func(c *hardenedCall, _ []string) error { c.help = true; return nil }},
}

// absolute lets paths be relative to the working directory, which the profile
// does not.
func absolute(path string) (string, error) {
	if path == "" {
		return "", fmt.Errorf("the path is empty")
	}
	return filepath.Abs(path)
}

func setVenv(c *hardenedCall, v []string) error {
	path, err := absolute(v[0])
	if err != nil {
		return err
	}
	p, err := c.profile.WithVenv(path)
	if err != nil {
		return err
	}
	p.Env = append(p.Env, "PATH="+filepath.Dir(p.Python)+":"+profile.DefaultPath)
	c.profile = p
	return nil
}

func addBind(binds *[]profile.Bind, v []string) error {
	host, err := absolute(v[0])
	*binds = append(*binds, profile.Bind{Host: host, Guest: v[1]})
	return err
}

func addLimit(c *hardenedCall, v []string) error {
	name, value, ok := strings.Cut(v[0], "=")
	resource, known := pidone.LimitByName(name)
	if !ok || !known {
		return fmt.Errorf("%q is not NAME=SOFT[:HARD] with a name of prlimit(1)", v[0])
	}
	soft, hard, both := strings.Cut(value, ":")
	if !both {
		hard = soft
	}
	l := pidone.Limit{Resource: resource}
	var err error
	if l.Soft, err = limit(soft); err != nil {
		return err
	}
	if l.Hard, err = limit(hard); err != nil {
		return err
	}
	c.limits = append(c.limits, l)
	return nil
}

func limit(s string) (uint64, error) {
	if s == "unlimited" {
		return math.MaxUint64, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is neither a number nor \"unlimited\"", s)
	}
	return n, nil
}

func positive(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%q is not a positive number of bytes", s)
	}
	return n, nil
}

func id(s string) (*uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("%q is not a user or group number", s)
	}
	v := uint32(n)
	return &v, nil
}

func setID(g *profile.GuestID, s string) error {
	n, err := id(s)
	if err != nil {
		return err
	}
	*g = profile.NumericID(*n)
	return nil
}

func setSeccomp(c *hardenedCall, v []string) error {
	switch v[0] {
	case "hardened":
		c.profile.Seccomp, c.profile.NoSeccomp = nil, false
	case "baseline":
		b := seccompbpf.Baseline()
		c.profile.Seccomp, c.profile.NoSeccomp = &b, false
	case "off":
		c.profile.Seccomp, c.profile.NoSeccomp = nil, true
	default:
		return fmt.Errorf("%q is not hardened, baseline or off", v[0])
	}
	return nil
}
