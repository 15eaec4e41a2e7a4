//go:build linux

package bwrapflags

import "strings"

// An environ is a list of NAME=value, changed as the C library does it: an
// existing name keeps its place, a new one goes last.
type environ []string

// usable drops what no process can have set by a name.
func usable(env []string) environ {
	out := make(environ, 0, len(env)+1)
	for _, e := range env {
		if name, _, ok := strings.Cut(e, "="); ok && name != "" && strings.IndexByte(e, 0) < 0 {
			out = append(out, e)
		}
	}
	return out
}

func validName(name string) bool { return name != "" && !strings.ContainsAny(name, "=\x00") }

func (e environ) get(name string) (string, bool) {
	for _, v := range e {
		if rest, ok := strings.CutPrefix(v, name+"="); ok {
			return rest, true
		}
	}
	return "", false
}

func (e *environ) set(name, value string) {
	for i, v := range *e {
		if strings.HasPrefix(v, name+"=") {
			(*e)[i] = name + "=" + value
			return
		}
	}
	*e = append(*e, name+"="+value)
}

func (e *environ) unset(name string) {
	kept := (*e)[:0]
	for _, v := range *e {
		if !strings.HasPrefix(v, name+"=") {
			kept = append(kept, v)
		}
	}
	*e = kept
}
