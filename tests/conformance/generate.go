//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Generate returns n command lines that depend on nothing but the seed.
//
// They run as root, too, so they must not reach the machine: what is writable comes from the scratch
// directory, and where the whole root is writable every destination lies there.
func Generate(seed uint64, n int) []Case {
	cases := make([]Case, n)
	for i := range cases {
		g := generator{rand.New(rand.NewPCG(seed, uint64(i)))}
		parts := g.parts()
		cases[i] = Case{
			Name:  fmt.Sprintf("generated/%d-%d", seed, i),
			Parts: parts,
			Line:  strings.Join(parts, " "),
			Exit:  g.IntN(3),
		}
	}
	return cases
}

type generator struct{ *rand.Rand }

func (g generator) pick(list ...string) string { return list[g.IntN(len(list))] }

// parts returns the options, each with its arguments, and the command.
func (g generator) parts() []string {
	command := "$PROBE"
	var parts []string
	destination := func() string {
		if g.IntN(4) > 0 {
			return g.pick("/mnt/x", "/mnt/x", "/mnt/y", "/mnt/x/y", "/mnt/x/../z", "mnt/rel", "/mnt/link", "/mnt/link", "/mnt/link/in", "/mnt/y/")
		}
		return g.pick("/mnt", "/tmp", "/dev/shm", "/usr/share", "/a", "/a/b", "/etc/hostname", "$W", "$W/d", "$W/d2", "$W/f",
			"$W/new", "$W/d/new", "$W/link-d", "$W/link-f", "$W/link-abs/in", "$W/dangling", "$W/empty")
	}
	switch g.IntN(6) {
	case 0, 1:
		parts = append(parts, "--ro-bind / /", "--tmpfs /mnt")
	case 2:
		parts = append(parts, "$R")
	case 3:
		parts = append(parts, g.pick("--bind / /", "--dev-bind / /"))
		destination = func() string {
			if g.IntN(4) > 0 {
				return g.pick("$W/d", "$W/d/sub", "$W/d2", "$W/new", "$W/new/deep", "$W/made", "$W/d/new", "$W/empty/x")
			}
			return g.pick("$W", "$W/d", "$W/d/sub", "$W/d2", "$W/f", "$W/f2", "$W/new", "$W/new/deep", "$W/d/new", "$W/d2/",
				"$W/link-d", "$W/link-f", "$W/link-abs", "$W/link-d/in", "$W/link-abs/in", "$W/dangling", "$W/loop", "$W/empty")
		}
	case 4:
		parts = append(parts, "--ro-bind $PROBE /probe")
		command = "/probe"
	case 5:
		parts = append(parts, "--tmpfs /", "--ro-bind /usr /usr", "--symlink usr/bin /bin", "--symlink usr/lib /lib",
			"--symlink usr/lib64 /lib64", "--ro-bind $PROBE /probe")
		command = g.pick("/probe", "sh -c 'exec /probe \"$@\"' sh")
	}
	first := len(parts)
	for range 1 + g.IntN(6) {
		parts = append(parts, g.option(destination))
	}
	// Those the kernel has once for all: their root's mode is the machine's as well.
	if slices.ContainsFunc(parts, isKernels) {
		parts = slices.DeleteFunc(parts, isChmod)
	}
	if g.IntN(5) == 0 { // options that are no operations may come first
		i := first + g.IntN(len(parts)-first)
		moved := parts[i]
		if !strings.Contains(moved, "/") {
			parts = append(append([]string{moved}, parts[:i]...), parts[i+1:]...)
		}
	}
	return append(parts, g.pick(command, command, command, "-- "+command, command+" one 'two words'"))
}

func isKernels(part string) bool {
	return strings.HasPrefix(part, "--proc ") || strings.HasPrefix(part, "--mqueue ")
}

func isChmod(part string) bool { return strings.HasPrefix(part, "--chmod ") }

func (g generator) option(destination func() string) string {
	writable := func() string {
		if g.IntN(3) > 0 {
			return g.pick("$W/d", "$W/d2", "$W/lo1", "$W/empty")
		}
		return g.pick("$W/f", "$W/link-d", "$W/link-f", "d", "$W/missing", "'with space'", "$W")
	}
	readable := func() string {
		return g.pick(writable(), writable(), "/usr", "/etc/hostname", "/dev/null", "$W/private/secret", "/sys/kernel", "/proc/version")
	}
	mode := func() string { return g.pick("0700", "0755", "1777", "0600", "0111", "4755", "0") }
	data := func() string { return g.pick("{pipe:data}", "{memfd:more data}", "{file:from a file}", "{pipe:}") }
	switch g.IntN(46) {
	case 0, 1, 2:
		return g.pick("--bind", "--bind-try") + " " + writable() + " " + destination()
	case 3, 4, 5:
		return g.pick("--ro-bind", "--ro-bind-try") + " " + readable() + " " + destination()
	case 6:
		return g.pick("--dev-bind", "--dev-bind-try") + " " + writable() + " " + destination()
	case 7, 8:
		return "--tmpfs " + destination()
	case 9:
		return "--perms " + mode() + " --tmpfs " + destination()
	case 10, 11:
		return "--dir " + destination()
	case 12:
		return "--perms " + mode() + " --dir " + destination()
	case 13:
		return "--file " + data() + " " + destination()
	case 14:
		return "--perms " + mode() + " --file " + data() + " " + destination()
	case 15:
		return g.pick("--bind-data ", "--ro-bind-data ") + data() + " " + destination()
	case 16, 17:
		return "--symlink " + g.pick("x", "y", "../mnt/x", "$W/d", "nowhere", "d2") + " " + destination()
	case 18:
		return "--chmod " + mode() + " " + destination()
	case 19:
		return "--remount-ro " + destination()
	case 20:
		return "--proc " + g.pick("/proc", "/proc", destination())
	case 21:
		return "--dev " + g.pick("/dev", "/dev", destination())
	case 22:
		return "--mqueue " + destination()
	case 23:
		return "--overlay-src $W/lo1 --overlay-src $W/lo2 " + g.pick("--tmp-overlay", "--ro-overlay", "--overlay $W/up $W/wk") + " " + destination()
	case 24:
		return g.pick("--bind-fd", "--ro-bind-fd") + " " + g.pick("{open:$W/d}", "{path:$W/d2}", "{path:$W/f}") + " " + destination()
	case 25:
		return "--unshare-all"
	case 26:
		return "--unshare-user"
	case 27, 28:
		return "--unshare-pid"
	case 29:
		return g.pick("--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup", "--unshare-cgroup-try", "--unshare-user-try", "--share-net")
	case 30:
		return "--unshare-user --uid " + g.pick("0", "1000", "65534") + " --gid " + g.pick("0", "1000", "65534")
	case 31:
		return "--unshare-uts --hostname " + g.pick("box", "''", "a.b-c")
	case 32:
		return "--setenv " + g.pick("A", "PATH", "HOME", "PWD", "CANARY") + " " + g.pick("''", "/usr/bin:/bin", "/mnt", "x")
	case 33:
		return g.pick("--clearenv", "--unsetenv CANARY", "--unsetenv HOME", "--unsetenv PATH")
	case 34:
		return "--chdir " + g.pick("/", "/mnt", "/usr", "$W/d", "$W/link-d", "/missing", "mnt")
	case 35:
		return g.pick("--die-with-parent", "--new-session")
	case 36:
		return "--unshare-pid --as-pid-1"
	case 37:
		return "--cap-drop " + g.pick("ALL", "all", "CAP_CHOWN", "CAP_SYS_ADMIN", "CAP_NET_RAW")
	case 38:
		return "--cap-add " + g.pick("ALL", "CAP_CHOWN", "CAP_SYS_ADMIN", "CAP_NET_ADMIN")
	case 39:
		return "--seccomp " + g.pick("{bpf:allow}", "{bpf:nouname}", "{bpf:nopriority}")
	case 40:
		return "--add-seccomp-fd " + g.pick("{bpf:allow}", "{bpf:nouname}")
	case 41:
		return "--sync-fd {sync}"
	case 42:
		return g.pick("--info-fd {out}", "--json-status-fd {out}")
	case 43:
		return "--args {args:--setenv FROM args --dir /dev/shm/none --unshare-ipc}"
	case 44:
		return "--unshare-user --disable-userns"
	default:
		return "--argv0 " + g.pick("zero", "/bin/other")
	}
}
