package checkpoint

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// anyDirs is the glob component that stands for any number of components, none included.
const anyDirs = "**"

// CheckGlobs reports what is wrong with the first glob that [Save] would refuse.
func CheckGlobs(patterns []string) error {
	_, err := compile(patterns)
	return err
}

// globs is a set of compiled globs; nil matches everything.
type globs [][]string

func compile(patterns []string) (globs, error) {
	var gs globs
	for _, p := range patterns {
		components := strings.Split(strings.TrimSuffix(p, "/"), "/")
		for _, c := range components {
			if c == "" || c == "." || c == ".." {
				return nil, fmt.Errorf("glob %q: not a relative, clean path: %w", p, path.ErrBadPattern)
			}
			if _, err := path.Match(c, ""); err != nil {
				return nil, fmt.Errorf("glob %q: %w", p, err)
			}
		}
		gs = append(gs, components)
	}
	return gs, nil
}

// match reports whether a path, or a directory above it, matches one of the globs, and
// otherwise whether something below it could.
func (gs globs) match(name string) (selected, below bool) {
	if gs == nil {
		return true, true
	}
	for _, g := range gs {
		at := closure(g, []int{0})
		done := slices.Contains(at, len(g))
		for component := range strings.SplitSeq(name, "/") {
			if done || len(at) == 0 {
				break
			}
			at = step(g, at, component)
			done = slices.Contains(at, len(g))
		}
		if done {
			return true, true
		}
		below = below || len(at) > 0
	}
	return false, below
}

// A glob is matched as an automaton whose states are positions in it: the time does
// not explode, however many stars there are.
func step(g []string, at []int, component string) []int {
	var next []int
	for _, i := range at {
		if i == len(g) {
			continue
		}
		if g[i] == anyDirs {
			next = append(next, i)
		} else if ok, err := path.Match(g[i], component); ok && err == nil {
			next = append(next, i+1)
		}
	}
	return closure(g, next)
}

// closure adds the positions that are reached because ** may stand for nothing.
func closure(g []string, at []int) []int {
	for n := 0; n < len(at); n++ {
		if i := at[n]; i < len(g) && g[i] == anyDirs && !slices.Contains(at, i+1) {
			at = append(at, i+1)
		}
	}
	slices.Sort(at)
	return slices.Compact(at)
}
