//go:build linux

package bwrapflags

import (
	"errors"
	"io/fs"
	"maps"
	"strings"
	"sync"

	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"github.com/populationgenomics/postern-go/pidone"
	"golang.org/x/sys/unix"
)

// An option is one word that starts with two dashes, and what follows it.
type option struct {
	operands int
	few      string // what to say of too few operands, where it is not the usual
	apply    func(p *parser, word string, v []string) error
}

func (o option) tooFew(word string) string {
	if o.few != "" {
		return o.few
	}
	return word + [...]string{"", " takes an argument", " takes two arguments", " takes three arguments"}[o.operands]
}

var (
	fillOptions sync.Once
	optionTable map[string]option
)

// options returns all options by word. Their table is made when it is first
// asked for: a launcher has other things to do as well, and --args refers to
// the table.
func options() map[string]option {
	fillOptions.Do(func() {
		optionTable = bwrapOptions()
		maps.Copy(optionTable, extensions())
	})
	return optionTable
}

func bwrapOptions() map[string]option {
	bind := func(m mounts.Mode, optional bool) option { return option{2, "", bindOption(m, optional)} }
	flag := func(set func(*parser)) option {
		return option{apply: func(p *parser, _ string, _ []string) error { set(p); return nil }}
	}
	dest := func(op func(dest string) mounts.Op) option {
		return option{operands: 1, apply: func(p *parser, word string, v []string) error {
			return p.add(word, v[0], op)
		}}
	}
	oneArgument := func(o option, word string) option { o.few = word + " takes one argument"; return o }

	return map[string]option{
		"--help":    flag(func(p *parser) { p.cmd.Action = Help }),
		"--version": flag(func(p *parser) { p.cmd.Action = ShowVersion }),
		"--args":    {1, "", readArgs},
		"--argv0": {1, "--argv0 takes one argument", func(p *parser, _ string, v []string) error {
			if p.argv0 != nil {
				return p.failf("--argv0 used multiple times")
			}
			p.argv0 = &v[0]
			return nil
		}},
		"--level-prefix": flag(func(p *parser) { p.cmd.LevelPrefix = true }),

		"--unshare-all": flag(func(p *parser) {
			p.userTry, p.ipc, p.pid, p.net, p.uts, p.cgroupTry = true, true, true, true, true, true
		}),
		"--share-net":          flag(func(p *parser) { p.net = false }),
		"--unshare-user":       flag(func(p *parser) { p.user = true }),
		"--unshare-user-try":   flag(func(p *parser) { p.userTry = true }),
		"--unshare-ipc":        flag(func(p *parser) { p.ipc = true }),
		"--unshare-pid":        flag(func(p *parser) { p.pid = true }),
		"--unshare-net":        flag(func(p *parser) { p.net = true }),
		"--unshare-uts":        flag(func(p *parser) { p.uts = true }),
		"--unshare-cgroup":     flag(func(p *parser) { p.cgroup = true }),
		"--unshare-cgroup-try": flag(func(p *parser) { p.cgroupTry = true }),

		"--userns":                 {1, "", lastFD(func(p *parser) **int { return &p.cmd.UserNS })},
		"--userns2":                {1, "", lastFD(func(p *parser) **int { return &p.launcher.UserNS2 })},
		"--pidns":                  {1, "", lastFD(func(p *parser) **int { return &p.cmd.PIDNS })},
		"--disable-userns":         flag(func(p *parser) { p.cmd.Spec.DisableUserns = true }),
		"--assert-userns-disabled": flag(func(p *parser) { p.cmd.Spec.AssertUsernsDisabled = true }),

		"--uid": {1, "", idOption("uid", func(p *parser) **int { return &p.uid })},
		"--gid": {1, "", idOption("gid", func(p *parser) **int { return &p.gid })},
		"--hostname": {1, "", func(p *parser, word string, v []string) error {
			if len(v[0]) > 64 {
				p.late = append(p.late, func() error { return p.failf("Can't set hostname to %s: Invalid argument", v[0]) })
			}
			p.last(word, &p.hostname, v[0])
			return nil
		}},
		"--chdir": oneArgument(option{operands: 1, apply: func(p *parser, word string, v []string) error {
			if v[0] == "" {
				return p.empty(word)
			}
			p.last(word, &p.dir, v[0])
			return nil
		}}, "--chdir"),
		"--clearenv": flag(func(p *parser) { p.env = nil }),
		"--setenv": {2, "", func(p *parser, _ string, v []string) error {
			if !validName(v[0]) {
				return p.failf("setenv failed")
			}
			p.env.set(v[0], v[1])
			return nil
		}},
		"--unsetenv": {1, "", func(p *parser, _ string, v []string) error {
			if !validName(v[0]) {
				return p.failf("unsetenv failed")
			}
			p.env.unset(v[0])
			return nil
		}},

		"--lock-file": {1, "", func(p *parser, word string, v []string) error {
			if v[0] == "" {
				return p.empty(word)
			}
			p.launcher.Locks = append(p.launcher.Locks, v[0])
			return nil
		}},
		"--sync-fd": {1, "", withFD(func(p *parser, fd int) error {
			p.launcher.Sync = append(p.launcher.Sync, fd)
			return nil
		})},
		"--block-fd":        {1, "", lastFD(func(p *parser) **int { return &p.launcher.Block })},
		"--userns-block-fd": {1, "", lastFD(func(p *parser) **int { return &p.cmd.UserNSBlockFD })},
		"--info-fd":         {1, "", lastFD(func(p *parser) **int { return &p.cmd.InfoFD })},
		"--json-status-fd":  {1, "", lastFD(func(p *parser) **int { return &p.cmd.StatusFD })},
		"--new-session":     flag(func(p *parser) { p.cmd.Spec.NewSession = true }),
		"--die-with-parent": flag(func(p *parser) { p.launcher.DieWithParent = true }),
		"--as-pid-1":        flag(func(p *parser) { p.asPID1 = true }),

		"--bind": bind(mounts.ReadWrite, false), "--bind-try": bind(mounts.ReadWrite, true),
		"--ro-bind": bind(mounts.ReadOnly, false), "--ro-bind-try": bind(mounts.ReadOnly, true),
		"--dev-bind": bind(mounts.Device, false), "--dev-bind-try": bind(mounts.Device, true),
		"--bind-fd":    {2, "--bind-fd takes two arguments", bindFD(mounts.ReadWrite)},
		"--ro-bind-fd": {2, "--bind-fd takes two arguments", bindFD(mounts.ReadOnly)},
		"--remount-ro": oneArgument(dest(func(d string) mounts.Op { return mounts.RemountRO{Dest: d} }), "--remount-ro"),
		"--overlay-src": {1, layersPending, func(p *parser, word string, v []string) error {
			if v[0] == "" {
				return p.empty(word)
			}
			p.layers = append(p.layers, p.source(v[0]))
			return nil
		}},
		"--overlay":     {3, "", overlay},
		"--tmp-overlay": {1, "", overlay},
		"--ro-overlay":  {1, "", overlay},

		"--exec-label": {1, "", noLabels},
		"--file-label": {1, "", noLabels},

		"--proc": dest(func(d string) mounts.Op {
			return mounts.Proc{Dest: d} // its masks depend on the facts
		}),
		"--dev":    {1, "", devOption},
		"--mqueue": dest(func(d string) mounts.Op { return mounts.Mqueue{Dest: d} }),
		"--tmpfs": {1, "", func(p *parser, word string, v []string) error {
			op := mounts.Tmpfs{Perm: p.takePerms()}
			if p.size != nil {
				op.Size = *p.size
				p.size = nil
			}
			return p.add(word, v[0], func(d string) mounts.Op { op.Dest = d; return op })
		}},
		"--dir": {1, "", func(p *parser, word string, v []string) error {
			op := mounts.Dir{Perm: p.takePerms()}
			return p.add(word, v[0], func(d string) mounts.Op { op.Dest = d; return op })
		}},
		"--file":         {2, "", dataOption},
		"--bind-data":    {2, "", dataOption},
		"--ro-bind-data": {2, "", dataOption},
		"--symlink": {2, "", func(p *parser, word string, v []string) error {
			if v[0] == "" {
				return p.empty(word)
			}
			return p.add(word, v[1], func(d string) mounts.Op { return mounts.Symlink{Target: v[0], Dest: d} })
		}},
		"--chmod": {2, "", func(p *parser, word string, v []string) error {
			mode, ok := octalMode(v[0])
			if !ok {
				return p.failf("--chmod takes an octal argument <= 07777")
			}
			return p.add(word, v[1], func(d string) mounts.Op { return mounts.Chmod{Dest: d, Perm: fs.FileMode(mode)} })
		}},
		"--perms": {1, "", func(p *parser, _ string, v []string) error {
			if p.perms != nil {
				return p.failf("--perms given twice for the same action")
			}
			mode, ok := octalMode(v[0])
			if !ok {
				return p.failf("--perms takes an octal argument <= 07777")
			}
			p.perms = &mode
			return nil
		}},
		"--size": {1, "", sizeOption},

		"--seccomp": {1, "", func(p *parser, word string, v []string) error {
			if p.seccompAdd != nil {
				return p.failf("--seccomp cannot be combined with --add-seccomp-fd")
			}
			return lastFD(func(p *parser) **int { return &p.seccomp })(p, word, v)
		}},
		"--add-seccomp-fd": {1, "", func(p *parser, word string, v []string) error {
			if p.seccomp != nil {
				return p.failf("--add-seccomp-fd cannot be combined with --seccomp")
			}
			return withFD(func(p *parser, fd int) error { p.seccompAdd = append(p.seccompAdd, fd); return nil })(p, word, v)
		}},
		"--cap-add":  {1, "", capOption},
		"--cap-drop": {1, "", capOption},
		// It lets a submount keep flags that cannot be changed. Ours are changed
		// before they are mounted, all at once, and there is no such case.
		"--not-a-security-boundary": flag(func(*parser) {}),
	}
}

func (p *parser) empty(word string) error {
	return p.failf("%s does not take an empty path argument", word)
}

// last sets a value of which only one can have an effect.
func (p *parser) last(word string, to **string, value string) {
	if *to != nil {
		p.warnf("Only the last %s option will take effect", word)
	}
	*to = &value
}

func withFD(use func(p *parser, fd int) error) func(*parser, string, []string) error {
	return func(p *parser, _ string, v []string) error {
		fd, ok := smallNumber(v[0])
		if !ok {
			return p.failf("Invalid fd: %s", v[0])
		}
		return use(p, fd)
	}
}

// lastFD is for descriptors of which only the last one given counts.
func lastFD(to func(*parser) **int) func(*parser, string, []string) error {
	return func(p *parser, word string, v []string) error {
		if *to(p) != nil {
			p.warnf("Only the last %s option will take effect", word)
		}
		return withFD(func(p *parser, fd int) error { *to(p) = &fd; return nil })(p, word, v)
	}
}

func idOption(name string, to func(*parser) **int) func(*parser, string, []string) error {
	return func(p *parser, word string, v []string) error {
		if *to(p) != nil {
			p.warnf("Only the last %s option will take effect", word)
		}
		n, ok := smallNumber(v[0])
		if !ok {
			return p.failf("Invalid %s: %s", name, v[0])
		}
		*to(p) = &n
		return nil
	}
}

func readArgs(p *parser, _ string, v []string) error {
	fd, ok := smallNumber(v[0])
	if !ok {
		return p.failf("Invalid fd: %s", v[0])
	}
	data, err := p.fds.ReadAll(fd)
	if err != nil {
		return p.failf("Can't read --args data: %s", errnoText(err))
	}
	if len(data) == 0 {
		return nil
	}
	// What follows the options in the file is neither a command nor an error.
	_, err = p.words(strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00"), true)
	return err
}

// errnoText is the C library's text for the errno in an error.
func errnoText(err error) string {
	var e unix.Errno
	if errors.As(err, &e) {
		return pidone.ErrnoText(e)
	}
	return err.Error()
}

func capOption(p *parser, word string, v []string) error {
	p.capsChanged = true
	set := ^nsexec.CapSet(0)
	if !strings.EqualFold(v[0], "ALL") {
		var ok bool
		if set, ok = capability(v[0]); !ok {
			return p.failf("unknown cap: %s", v[0])
		}
	}
	if word == "--cap-add" {
		p.caps |= set
	} else {
		p.caps &^= set
	}
	return nil
}

func sizeOption(p *parser, _ string, v []string) error {
	if p.size != nil {
		return p.failf("--size given twice for the same action")
	}
	n, ok := byteCount(v[0])
	if !ok {
		return p.failf("--size takes a non-zero number of bytes")
	}
	const limit = 1<<63 - 1
	if n > limit {
		return p.failf("--size (for tmpfs) is limited to %d", uint64(limit))
	}
	size := int64(n)
	p.size = &size
	return nil
}

func noLabels(p *parser, _ string, _ []string) error {
	return p.failf("labeling not supported on this system")
}
