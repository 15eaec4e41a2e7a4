//go:build linux

package mounts_test

import (
	"slices"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/mounts"
)

// A mount may land on a path by another name: through a link or "..". What
// was known of that path is then void, or the links that a guest planted in
// the mounted directory would be followed on the host.
func TestMountByAnotherName(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		rw := func(source, dest string) mounts.Bind {
			return mounts.Bind{Source: source, Dest: dest, Mode: mounts.ReadWrite}
		}
		known := []mounts.Op{mounts.Dir{Dest: "/x/y/z"}, mounts.File{Dest: "/x/y/f"}, mounts.Dir{Dest: "/a"}}
		linked := tree(t, "link -> /x")
		for name, reach := range map[string]func(w string) []mounts.Op{
			"..":          func(w string) []mounts.Op { return []mounts.Op{rw(w, "/a/../x/y")} },
			"trailing ..": func(w string) []mounts.Op { return []mounts.Op{rw(w, "/x/y/z/..")} },
			"link":        func(w string) []mounts.Op { return []mounts.Op{mounts.Symlink{Target: "x", Dest: "/l"}, rw(w, "/l/y")} },
			"bound link":  func(w string) []mounts.Op { return []mounts.Op{rw(linked, "/b"), rw(w, "/b/link/y")} },
			"followed link": func(w string) []mounts.Op {
				return []mounts.Op{mounts.Symlink{Target: "/x/y", Dest: "/l"}, mounts.Bind{Source: w, Dest: "/l", Mode: mounts.ReadWrite, FollowDest: true}}
			},
			"optional, ..": func(w string) []mounts.Op { b := rw(w, "/a/../x/y"); b.Optional = true; return []mounts.Op{b} },
			"optional, link": func(w string) []mounts.Op {
				b := rw(w, "/l/y")
				b.Optional = true
				return []mounts.Op{mounts.Symlink{Target: "x", Dest: "/l"}, b}
			},
			"plain": func(w string) []mounts.Op { return []mounts.Op{rw(w, "/x/y")} },
		} {
			victim := tree(t, "v")
			w := tree(t, "z -> "+victim, "f -> "+victim+"/v")
			for _, op := range []mounts.Op{
				mounts.Dir{Dest: "/x/y/z/made"}, mounts.File{Dest: "/x/y/z/made"}, mounts.Bind{Source: "/usr", Dest: "/x/y/z/made"}, mounts.Tmpfs{Dest: "/x/y/z/made"}, mounts.Tmpfs{Dest: "/x/y/z"},
				mounts.Bind{Source: "/usr", Dest: "/x/y/z"}, mounts.Symlink{Target: "t", Dest: "/x/y/z/made"}, mounts.BindData{Dest: "/x/y/z/made"}, mounts.BindData{Dest: "/x/y/f"}, mounts.Chmod{Dest: "/x/y/f", Perm: 0o777},
				mounts.Chmod{Dest: "/x/y/z", Perm: 0o777}, mounts.File{Dest: "/x/y/f", Data: "overwritten"}, mounts.Overlay{Dest: "/x/y/z", Lower: []string{"/usr"}}, mounts.Dev{Dest: "/x/y/z"}, mounts.Proc{Dest: "/x/y/z/made"},
			} {
				if r, err := guest.Try(guest.Shell("true", append(append(slices.Clone(known), reach(w)...), op)...)); err == nil {
					t.Errorf("%s: %v: launched: %+v", name, op, r)
				}
				if got := files(t, victim); !slices.Equal(got, []string{"v"}) {
					t.Fatalf("%s: %v: the host has %q", name, op, got)
				}
			}
		}
	})
}

// A directory that was opened is not used for one that has been covered since.
func TestParentIsCovered(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for name, cover := range map[string]func(v string) []mounts.Op{
			"directly": func(v string) []mounts.Op {
				return []mounts.Op{mounts.Bind{Source: v, Dest: "/k/w/d", Mode: mounts.ReadWrite}}
			},
			"by ..": func(v string) []mounts.Op {
				return []mounts.Op{mounts.Bind{Source: v, Dest: "/k/w/d/e/..", Mode: mounts.ReadWrite}}
			},
			"by a link": func(v string) []mounts.Op {
				return []mounts.Op{mounts.Bind{Source: v, Dest: "/k/w/d/self", Mode: mounts.ReadWrite, FollowDest: true}}
			},
			"from above": func(v string) []mounts.Op {
				return []mounts.Op{mounts.Bind{Source: tree(t, "w/d/"), Dest: "/k"}, mounts.Bind{Source: v, Dest: "/k/w/d", Mode: mounts.ReadWrite}}
			},
			"by tmpfs": func(v string) []mounts.Op {
				return []mounts.Op{mounts.Tmpfs{Dest: "/k/w"}, mounts.Bind{Source: v, Dest: "/k/w/d", Mode: mounts.ReadWrite}}
			},
			"by overlay": func(v string) []mounts.Op {
				return []mounts.Op{mounts.Overlay{Dest: "/k/w", Lower: []string{tree(t, "d/")}}, mounts.Bind{Source: v, Dest: "/k/w/d", Mode: mounts.ReadWrite}}
			},
			"from far above": func(v string) []mounts.Op {
				return []mounts.Op{mounts.Bind{Source: tree(t, "w/d/"), Dest: "/k"}, mounts.Bind{Source: v, Dest: "/k/w/d", Mode: mounts.ReadWrite}, mounts.RemountRO{Dest: "/k"}}
			},
		} {
			w := tree(t, "d/e/", "d/self -> /k/w/d")
			v := tree(t, "v")
			ops := append([]mounts.Op{mounts.Dir{Dest: "/k"}, mounts.Bind{Source: w, Dest: "/k/w", Mode: mounts.ReadWrite}, mounts.File{Dest: "/k/w/d/first"}}, cover(v)...)
			if got := guest.Output(t, "cat /k/w/d/second /k/w/d/v", append(ops, mounts.File{Dest: "/k/w/d/second", Data: "second\n"})...); got != "second\nv" {
				t.Errorf("%s: %q", name, got)
			}
			if got, want := files(t, v), []string{"second", "v"}; !slices.Equal(got, want) {
				t.Errorf("%s: covering directory has %q, want %q", name, got, want)
			}
			if got, want := files(t, w), []string{"d/", "d/e/", "d/first", "d/self -> /k/w/d"}; !slices.Equal(got, want) {
				t.Errorf("%s: covered directory has %q, want %q", name, got, want)
			}
		}
	})
}

// A mount that lands on the root by another name is the root from then on.
func TestRootByAnotherName(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for _, dest := range []string{"/..", "/a/..", "/../..", "/a/b/../.."} {
			ops := []mounts.Op{mounts.Dir{Dest: "/a/b"}, mounts.Bind{Source: tree(t, "mark"), Dest: dest, Mode: mounts.ReadWrite}}
			s := guest.Shell("cat /mark /f; ls -d /a 2>&1 | grep -o 'No such'")
			s.Mounts = &mounts.Tree{Ops: append(append(ops, guest.System()...), mounts.File{Dest: "/f", Data: "f\n"})}
			if got := guest.MustOutput(t, s); got != "mark\nf\nNo such" {
				t.Errorf("bind at %s: %q", dest, got)
			}
			ops[1] = mounts.Tmpfs{Dest: dest}
			s = guest.Shell("cat /f; ls -d /a 2>&1 | grep -o 'No such'")
			s.Mounts = &mounts.Tree{Ops: append(append(ops, guest.System()...), mounts.File{Dest: "/f", Data: "f\n"})}
			if got := guest.MustOutput(t, s); got != "f\nNo such" {
				t.Errorf("tmpfs at %s: %q", dest, got)
			}
		}
		ops := []mounts.Op{mounts.Symlink{Target: "/", Dest: "/l"}, mounts.Bind{Source: tree(t, "mark"), Dest: "/l", Mode: mounts.ReadWrite, FollowDest: true}}
		s := guest.Shell("cat /mark /f")
		s.Mounts = &mounts.Tree{Ops: append(append(ops, guest.System()...), mounts.File{Dest: "/f", Data: "f\n"})}
		if got := guest.MustOutput(t, s); got != "mark\nf" {
			t.Errorf("followed link: %q", got)
		}
	})
}
