//go:build linux

package bwrapflags

import (
	"io/fs"
	"slices"
	"strings"

	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/seccompbpf"
	"golang.org/x/sys/unix"
)

// add appends an operation at a destination.
func (p *parser) add(word, dest string, op func(dest string) mounts.Op) error {
	if dest == "" {
		return p.empty(word)
	}
	abs := absolute(dest)
	if abs != dest {
		p.cmd.dests[abs] = dest
	} else {
		delete(p.cmd.dests, abs)
	}
	o := op(abs)
	if p.follow {
		o = following(o)
	}
	p.tree.Ops = append(p.tree.Ops, o)
	return nil
}

// source makes a path of the host absolute.
func (p *parser) source(path string) string {
	if strings.HasPrefix(path, "/") {
		return path
	}
	if p.facts.Dir == "" {
		p.late = append(p.late, func() error {
			return p.failf("Can't find source path %s: %s", path, errnoText(unix.ENOENT))
		})
		return "/"
	}
	abs := strings.TrimSuffix(p.facts.Dir, "/") + "/" + path
	p.cmd.sources[abs] = path
	return abs
}

func (p *parser) takePerms() *fs.FileMode {
	if p.perms == nil {
		return nil
	}
	m := fs.FileMode(*p.perms)
	p.perms = nil
	return &m
}

func bindOption(m mounts.Mode, optional bool) func(*parser, string, []string) error {
	return func(p *parser, word string, v []string) error {
		if v[0] == "" || v[1] == "" {
			return p.empty(word)
		}
		return p.add(word, v[1], func(d string) mounts.Op {
			return mounts.Bind{Source: p.source(v[0]), Dest: d, Mode: m, Optional: optional}
		})
	}
}

func bindFD(m mounts.Mode) func(*parser, string, []string) error {
	return func(p *parser, word string, v []string) error {
		return withFD(func(p *parser, fd int) error {
			return p.add(word, v[1], func(d string) mounts.Op {
				return mounts.Bind{FD: &fd, Dest: d, Mode: m}
			})
		})(p, word, v)
	}
}

func devOption(p *parser, word string, v []string) error {
	p.needsDevpts = true
	return p.add(word, v[0], func(d string) mounts.Op { return mounts.Dev{Dest: d, Console: p.facts.Terminal} })
}

func overlay(p *parser, word string, v []string) error {
	switch n := len(p.layers); {
	case word == "--ro-overlay" && n < 2:
		return p.failf("--ro-overlay requires at least two --overlay-src")
	case n < 1:
		return p.failf("%s requires at least one --overlay-src", word)
	}
	if slices.Contains(v, "") {
		return p.empty(word)
	}
	op := mounts.Overlay{Lower: p.layers, ReadOnly: word == "--ro-overlay"}
	p.layers = nil
	if word == "--overlay" {
		op.Upper, op.Work = p.source(v[0]), p.source(v[1])
	}
	return p.add(word, v[len(v)-1], func(d string) mounts.Op { op.Dest = d; return op })
}

// dataOption is for files whose contents come from a descriptor, which is read
// once the command line has proved good.
func dataOption(p *parser, word string, v []string) error {
	return withFD(func(p *parser, fd int) error {
		perms := p.takePerms()
		err := p.add(word, v[1], func(d string) mounts.Op {
			switch word {
			case "--bind-data":
				return mounts.BindData{Dest: d, Perm: perms, Mode: mounts.ReadWrite}
			case "--ro-bind-data":
				return mounts.BindData{Dest: d, Perm: perms, Mode: mounts.ReadOnly}
			}
			return mounts.File{Dest: d, Perm: perms}
		})
		if err != nil {
			return err
		}
		at := len(p.tree.Ops) - 1
		p.late = append(p.late, func() error {
			data, err := p.fds.ReadAll(fd)
			if err != nil {
				return p.failf("Can't write data to file %s: %s", v[1], errnoText(err))
			}
			switch op := p.tree.Ops[at].(type) {
			case mounts.BindData:
				op.Data = string(data)
				p.tree.Ops[at] = op
			case mounts.File:
				op.Data = string(data)
				p.tree.Ops[at] = op
			}
			return nil
		})
		return nil
	})(p, word, v)
}

// filters reads the seccomp programs, last of all.
func (p *parser) filters() error {
	fds := p.seccompAdd
	if p.seccomp != nil {
		fds = []int{*p.seccomp}
	}
	for _, fd := range fds {
		raw, err := p.fds.ReadAll(fd)
		if err != nil {
			return p.failf("Can't read seccomp data: %s", errnoText(err))
		}
		if len(raw)%8 != 0 {
			return p.failf("Invalid seccomp data, must be multiple of 8")
		}
		f, err := seccompbpf.Parse(raw)
		if err != nil {
			return p.failf("Unable to set up system call filtering as requested: prctl(PR_SET_SECCOMP) reported EINVAL. " +
				"(Hint: this requires a kernel configured with CONFIG_SECCOMP and CONFIG_SECCOMP_FILTER.)")
		}
		p.cmd.Spec.Seccomp = append(p.cmd.Spec.Seccomp, f)
	}
	return nil
}
