//go:build linux

package mounts_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/populationgenomics/postern-go/internal/stage"
	"github.com/populationgenomics/postern-go/mounts"
)

var update = flag.Bool("update", false, "write the listings in testdata anew")

// Programs are data: what an operation compiles to is compared without
// launching anything.
func TestListings(t *testing.T) {
	ro := mounts.Bind{Source: "/usr", Dest: "/usr"}
	for name, tree := range map[string]mounts.Tree{
		"empty":            {},
		"options":          {RootSize: 4096, FollowHost: true},
		"bind-known":       {Ops: []mounts.Op{ro}},
		"bind-parents":     {Ops: []mounts.Op{mounts.Bind{Source: "/usr", Dest: "/a/b/c"}, mounts.Bind{Source: "/lib", Dest: "/a/b/d", Mode: mounts.Device}}},
		"bind-optional":    {Ops: []mounts.Op{mounts.Bind{Source: "/opt", Dest: "/opt", Mode: mounts.ReadWrite, Optional: true}}},
		"bind-unknown":     {Ops: []mounts.Op{ro, mounts.Bind{Source: "/opt", Dest: "/usr/local/x"}}},
		"bind-fd":          {Ops: []mounts.Op{mounts.Bind{FD: ptr(7), Dest: "/x"}}},
		"bind-follow":      {Ops: []mounts.Op{ro, mounts.Bind{Source: "/opt", Dest: "/usr/opt", FollowDest: true}}},
		"bind-root":        {Ops: []mounts.Op{mounts.Bind{Source: "/", Dest: "/"}}},
		"tmpfs":            {Ops: []mounts.Op{mounts.Tmpfs{Dest: "/tmp", Perm: mounts.Perm(0o1777), Size: 1 << 20, Inodes: 100}}},
		"tmpfs-unknown":    {Ops: []mounts.Op{ro, mounts.Tmpfs{Dest: "/usr/tmp"}}},
		"proc":             {Ops: []mounts.Op{mounts.Proc{Dest: "/proc", Masks: []string{"sys", "irq"}}}},
		"proc-host":        {Ops: []mounts.Op{mounts.Proc{Dest: "/proc", Host: true, Masks: []string{"sys"}}}},
		"dev":              {Ops: []mounts.Op{mounts.Dev{Dest: "/dev", Console: "/dev/pts/3"}}},
		"mqueue":           {Ops: []mounts.Op{mounts.Mqueue{Dest: "/dev/mqueue"}}},
		"dir":              {Ops: []mounts.Op{mounts.Dir{Dest: "/a/b", Perm: mounts.Perm(0o700)}, mounts.Dir{Dest: "/a/b"}}},
		"file":             {Ops: []mounts.Op{mounts.File{Dest: "/etc/passwd", Data: "x"}}},
		"bind-data":        {Ops: []mounts.Op{mounts.BindData{Dest: "/etc/passwd", Data: "x"}}},
		"symlink":          {Ops: []mounts.Op{mounts.Symlink{Target: "usr/bin", Dest: "/bin"}, mounts.Symlink{Target: "usr/bin", Dest: "/bin"}}},
		"chmod":            {Ops: []mounts.Op{mounts.Dir{Dest: "/d"}, mounts.Chmod{Dest: "/d", Perm: 0o700}}},
		"remount-ro":       {Ops: []mounts.Op{mounts.RemountRO{Dest: "/"}}},
		"overlay":          {Ops: []mounts.Op{mounts.Overlay{Dest: "/o", Lower: []string{"/a:b", `/c\d,e`}, Upper: "/up", Work: "/work"}}},
		"overlay-tmp":      {Ops: []mounts.Op{mounts.Overlay{Dest: "/o", Lower: []string{"/a"}, Size: 4096}}},
		"overlay-readonly": {Ops: []mounts.Op{mounts.Overlay{Dest: "/o", Lower: []string{"/a", "/b"}, ReadOnly: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := mounts.Validate(tree.Ops); err != nil {
				t.Fatal(err)
			}
			b := &stage.Builder{}
			tree.Emit(b)
			b.Place(&b.Fail)
			b.Sys(stage.Step{Do: "exit"}, stage.ExitGroup, stage.Imm(1))
			got := b.Program().String()
			path := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("the listing changed; if that is right, run go test -update (-want +got):\n%s", diff)
			}
		})
	}
}

// Every way of writing the same destination compiles to the same program.
func TestEqualDestinations(t *testing.T) {
	program := func(dest string) string {
		b := &stage.Builder{}
		mounts.Tree{Ops: []mounts.Op{mounts.Dir{Dest: "/other"}, mounts.Tmpfs{Dest: dest}}}.Emit(b)
		b.Place(&b.Fail)
		return strings.ReplaceAll(b.Program().String(), dest+`"`, `DEST"`)
	}
	want := program("/a/b")
	for _, dest := range []string{"/a/b/", "//a///b", "/./a/./b/."} {
		if diff := cmp.Diff(want, program(dest)); diff != "" {
			t.Errorf("%s: %s", dest, diff)
		}
	}
}

func TestValidate(t *testing.T) {
	long := "/" + strings.Repeat("x", 4095)
	for _, c := range []struct {
		op   mounts.Op
		want string
	}{
		{mounts.Bind{Dest: "/d"}, "source is empty"},
		{mounts.Bind{Source: "s", Dest: "/d"}, `source "s" is not absolute`},
		{mounts.Bind{Source: "/s\x00", Dest: "/d"}, "NUL"},
		{mounts.Bind{Source: "/s"}, "destination is empty"},
		{mounts.Bind{Source: "/s", Dest: "d"}, `destination "d" is not absolute`},
		{mounts.Bind{Source: "/s", Dest: "/d\x00"}, "NUL"},
		{mounts.Bind{Source: "/s", Dest: "/d", Mode: 3}, "unknown mode 3"},
		{mounts.Bind{FD: ptr(-1), Dest: "/d"}, "descriptor -1 is negative"},
		{mounts.Tmpfs{Dest: ""}, "destination is empty"},
		{mounts.Tmpfs{Dest: "/d", Size: -1}, "negative"},
		{mounts.Tmpfs{Dest: "/d", Inodes: -1}, "negative"},
		{mounts.Proc{Dest: "proc"}, "not absolute"},
		{mounts.Proc{Dest: "/proc", Masks: []string{"/sys"}}, "mask"},
		{mounts.Proc{Dest: "/proc", Masks: []string{"sys/../.."}}, "mask"},
		{mounts.Proc{Dest: "/proc", Masks: []string{""}}, "mask"},
		{mounts.Proc{Dest: "/proc", Masks: []string{"a\x00"}}, "mask"},
		{mounts.Dev{Dest: "dev"}, "not absolute"},
		{mounts.Dev{Dest: "/dev", Console: "tty"}, "console"},
		{mounts.Dev{Dest: "/dev", Size: -1}, "negative"},
		{mounts.Mqueue{Dest: "x"}, "not absolute"},
		{mounts.Dir{Dest: "x"}, "not absolute"},
		{mounts.File{Dest: "x"}, "not absolute"},
		{mounts.Chmod{Dest: "x"}, "not absolute"},
		{mounts.RemountRO{Dest: "x"}, "not absolute"},
		{mounts.BindData{Dest: "x"}, "not absolute"},
		{mounts.BindData{Dest: "/x", Mode: mounts.Device}, "makes no sense"},
		{mounts.BindData{Dest: "/x", Mode: 9}, "mode"},
		{mounts.Symlink{Target: "a\x00", Dest: "/x"}, "NUL"},
		{mounts.Symlink{Target: "a", Dest: "x"}, "not absolute"},
		{mounts.Overlay{Dest: "/o"}, "no lower layer"},
		{mounts.Overlay{Dest: "/o", Lower: []string{"a"}}, "not absolute"},
		{mounts.Overlay{Dest: "/o", Lower: []string{"/a"}, ReadOnly: true}, "two layers"},
		{mounts.Overlay{Dest: "/o", Lower: []string{"/a", "/b"}, ReadOnly: true, Upper: "/u", Work: "/w"}, "upper"},
		{mounts.Overlay{Dest: "/o", Lower: []string{"/a"}, Upper: "/u"}, "both"},
		{mounts.Overlay{Dest: "/o", Lower: []string{"/a"}, Upper: "u", Work: "/w"}, "not absolute"},
		{mounts.Overlay{Dest: "/o", Lower: []string{"/a"}, Upper: "/u", Work: "w"}, "not absolute"},
		{mounts.Overlay{Dest: "/o", Lower: []string{"/a"}, Size: -1}, "negative"},
		{mounts.Overlay{Dest: "o", Lower: []string{"/a"}}, "not absolute"},
		{mounts.Overlay{Dest: "/o", Lower: []string{long, long}}, "the kernel accepts"},
	} {
		err := mounts.Validate([]mounts.Op{mounts.Dir{Dest: "/fine"}, c.op})
		var bad *mounts.InvalidError
		if !errors.As(err, &bad) || bad.Op != c.op.String() || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.op, err, c.want)
		}
	}
	err := mounts.Validate([]mounts.Op{mounts.Dir{Dest: "one"}, mounts.Dir{Dest: "/two"}, mounts.Dir{Dest: "three"}})
	if s := err.Error(); !strings.Contains(s, "one") || strings.Contains(s, "two") || !strings.Contains(s, "three") {
		t.Errorf("not all problems: %v", err)
	}
	if err := mounts.Validate(nil); err != nil {
		t.Error(err)
	}
}
