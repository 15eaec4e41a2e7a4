//go:build linux

package workspace

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// Whatever the name, clean gives a path that stays inside, or refuses it.
func FuzzName(f *testing.F) {
	for _, s := range []string{"", ".", "a/b", "a//./b/", "..", "a/../b", "/x", "a\x00", "...", "..a", "a/..b/.c", strings.Repeat("n", 256), "\xff/\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got, err := clean(name)
		if err != nil {
			var why Reason
			if !errors.As(err, &why) || got != "" {
				t.Errorf("%q: %q, %v", name, got, err)
			}
			return
		}
		if again, err := clean(got); again != got || err != nil {
			t.Errorf("%q: %q is not its own normal form: %q, %v", name, got, again, err)
		}
		want := strings.TrimPrefix(path.Clean("/"+name), "/")
		if got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
		if got != "" && !filepath.IsLocal(got) {
			t.Errorf("%q: %q leads outside", name, got)
		}
	})
}

// Whatever the stream, restoring it writes nothing outside, makes nothing but files
// and directories, keeps its limits, and does not follow what was there before.
func FuzzRestoreTar(f *testing.F) {
	f.Add(archive(f, files("a", "d/", "d/b", "./c")...).Bytes())
	f.Add(archive(f,
		tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "../outside"}, tar.Header{Name: "l/x"},
		tar.Header{Name: "../up"}, tar.Header{Name: "/abs"}, tar.Header{Name: "planted"}, tar.Header{Name: "dir/x"},
	).Bytes())
	f.Add(archive(f, tar.Header{Name: strings.Repeat("long/", 60), PAXRecords: map[string]string{"V.k": "v"}}).Bytes())
	f.Add(archive(f, tar.Header{Name: strings.Repeat("gnu/", 60), Format: tar.FormatGNU}).Bytes())
	f.Add([]byte("\x1f\x8b\x08\x00"))
	f.Add([]byte("\x28\xb5\x2f\xfd\x04\x00"))
	f.Add([]byte("BZh91AY&SY"))
	f.Add([]byte("\xfd7zXZ\x00"))
	base := f.TempDir()
	f.Fuzz(func(t *testing.T, stream []byte) {
		top, err := os.MkdirTemp(base, "")
		must(t, err)
		defer os.RemoveAll(top)
		dir := filepath.Join(top, "ws")
		must(t, os.Mkdir(dir, 0o755))
		out := outside(t, dir)
		plant(t, dir, "planted->"+out+"/secret", "dir->"+out)
		w, err := Open(dir)
		must(t, err)
		defer w.Close()
		limits := Limits{MaxEntries: 50, MaxBytes: 1 << 16, MaxDepth: 20, MaxPath: 1000}
		report, err := w.RestoreTar(t.Context(), bytes.NewReader(stream), RestoreOptions{Limits: limits, PreserveModes: true, PreserveTimes: true})
		if report.Files+int64(len(report.Skipped)) > limits.MaxEntries || report.Bytes > limits.MaxBytes {
			t.Errorf("%+v, %v", report, err)
		}
		intact(t, out)
		if entries, err := os.ReadDir(top); err != nil || len(entries) != 2 {
			t.Errorf("beside the workspace: %v, %v", entries, err)
		}
		for e, err := range w.Walk(".") {
			must(t, err)
			if planted := e.Path() == "planted" || e.Path() == "dir"; refusal(e.Type()) != "" && !planted {
				t.Errorf("%q is a %v", e.Path(), e.Type())
			}
			info, err := e.Info()
			must(t, err)
			if info.Mode()&(os.ModeSetuid|os.ModeSetgid|os.ModeSticky) != 0 {
				t.Errorf("%q has mode %v", e.Path(), info.Mode())
			}
		}
	})
}
