//go:build linux

package workspace

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

type member struct {
	header  *tar.Header
	content string
}

func pack(t testing.TB, w *Workspace, opts PackOptions) ([]member, Report) {
	t.Helper()
	var buf bytes.Buffer
	report, err := w.PackTar(t.Context(), &buf, opts)
	must(t, err)
	return members(t, &buf), report
}

func members(t testing.TB, r io.Reader) []member {
	t.Helper()
	var all []member
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return all
		}
		must(t, err)
		data, err := io.ReadAll(tr)
		must(t, err)
		all = append(all, member{h, string(data)})
	}
}

func names(ms []member) []string {
	var out []string
	for _, m := range ms {
		out = append(out, m.header.Name)
	}
	return out
}

func findings(fs []Finding) []string {
	var out []string
	for _, f := range fs {
		out = append(out, f.Path+" "+string(f.Reason))
	}
	return out
}

func same(t testing.TB, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

func TestPackTar(t *testing.T) {
	t.Run("256, 257, 258 and 272: only files and directories, sorted, the rest reported", func(t *testing.T) {
		w, dir := newWorkspace(t)
		out := outside(t, dir)
		plant(t, dir, "b/x", "b/a/", "a", "b-", "c", "link->"+out+"/secret", "dir->"+out, "b/p|", "s@")
		want := []string{"b/p fifo", "dir symlink", "link symlink", "s socket"}
		if os.Geteuid() == 0 {
			plantDevice(t, dir, "n")
			must(t, unix.Mknod(filepath.Join(dir, "nb"), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 0))))
			want = []string{"b/p fifo", "dir symlink", "link symlink", "n device", "nb device", "s socket"}
		}
		ms, report := pack(t, w, PackOptions{})
		same(t, "members", names(ms), "a", "b/", "b/a/", "b/x", "b-", "c")
		same(t, "skipped", findings(report.Skipped), want...)
		if report.OK() || report.Files != 4 || report.Dirs != 2 || report.Last != "c" { // 265
			t.Errorf("%+v", report)
		}
		for _, m := range ms {
			if typ := m.header.Typeflag; typ != tar.TypeReg && typ != tar.TypeDir {
				t.Errorf("%s has type %q", m.header.Name, typ)
			}
			if strings.Contains(m.content, secret) {
				t.Errorf("%s holds the secret", m.header.Name)
			}
		}
		intact(t, out)
	})
	t.Run("259 a hard link to the outside is not packed", func(t *testing.T) {
		w, dir := newWorkspace(t)
		outside(t, dir)
		plant(t, dir, "a", "h=../outside/secret", "h2=../outside/secret")
		ms, report := pack(t, w, PackOptions{})
		same(t, "members", names(ms), "a")
		same(t, "skipped", findings(report.Skipped), "h hardlink", "h2 hardlink")
	})
	t.Run("260 and 261 hard links inside are packed as copies, excluded names count", func(t *testing.T) {
		w, dir := newWorkspace(t)
		plant(t, dir, "a", "d/b=a", "x/c=a")
		ms, report := pack(t, w, PackOptions{Selection: Selection{Exclude: func(p string) bool { return p == "x" }}})
		same(t, "members", names(ms), "a", "d/", "d/b")
		if !report.OK() {
			t.Errorf("%+v", report)
		}
		for _, m := range ms {
			if m.header.Typeflag == tar.TypeReg && (m.content != "a" || m.header.Linkname != "") {
				t.Errorf("%+v", m)
			}
		}
	})
	t.Run("262 exclude skips a file, prunes a directory, and is not reported", func(t *testing.T) {
		w, dir := newWorkspace(t)
		plant(t, dir, "a", "d/b", "d/e/f", "k/l->/etc", "k/m")
		var asked []string
		ms, report := pack(t, w, PackOptions{Selection: Selection{Exclude: func(p string) bool {
			asked = append(asked, p)
			return p == "d" || p == "k/l"
		}}})
		same(t, "members", names(ms), "a", "k/", "k/m")
		same(t, "asked", asked, "a", "d", "k", "k/l", "k/m")
		if !report.OK() {
			t.Errorf("%+v", report)
		}
	})
	t.Run("264 on unsafe fail", func(t *testing.T) {
		w, dir := newWorkspace(t)
		plant(t, dir, "a", "evil\n->/etc/passwd", "z")
		report, err := w.PackTar(t.Context(), io.Discard, PackOptions{Selection: Selection{OnUnsafe: Fail}})
		if !errors.Is(err, Symlink) || !strings.Contains(err.Error(), `neutralized symlink entry 'evil\n'`) {
			t.Error(err)
		}
		if report.Last != "a" || report.Files != 1 {
			t.Errorf("%+v", report)
		}
	})
	t.Run("266 and 270 headers", func(t *testing.T) {
		w, dir := newWorkspace(t)
		plant(t, dir, "suid", "sgid", "d/", "plain", "t/")
		at := func(n string) string { return filepath.Join(dir, n) }
		must(t, unix.Chmod(at("suid"), 0o4755))
		must(t, unix.Chmod(at("sgid"), 0o2711))
		must(t, unix.Chmod(at("t"), 0o1777))
		must(t, unix.Chmod(at("d"), 0o2750))
		must(t, os.Chtimes(at("plain"), time.Now(), time.Unix(1234567890, 987654321)))
		ms, report := pack(t, w, PackOptions{})
		got := map[string]int64{}
		for _, m := range ms {
			h := m.header
			got[h.Name] = h.Mode
			if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.Gname != "" || h.ModTime.Nanosecond() != 0 {
				t.Errorf("%+v", h)
			}
			if h.Name == "plain" && h.ModTime.Unix() != 1234567890 {
				t.Error(h.ModTime)
			}
		}
		want := map[string]int64{"suid": 0o755, "sgid": 0o711, "t/": 0o777, "d/": 0o750, "plain": 0o644}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("modes %v, want %v", got, want)
		}
		same(t, "changed", findings(report.Changed), "d setgid", "sgid setgid", "suid setuid")
		if !report.OK() {
			t.Error("a stripped bit is not a skipped file")
		}
	})
	t.Run("file capabilities do not travel", func(t *testing.T) {
		w, dir := newWorkspace(t)
		plant(t, dir, "cap")
		must(t, os.Chmod(filepath.Join(dir, "cap"), 0o755))
		plantCapability(t, filepath.Join(dir, "cap"))
		ms, report := pack(t, w, PackOptions{})
		same(t, "changed", findings(report.Changed), "cap capability")
		if len(ms[0].header.PAXRecords) != 0 {
			t.Error(ms[0].header.PAXRecords)
		}
	})
	t.Run("269 names that are not UTF-8, and long ones", func(t *testing.T) {
		w, dir := newWorkspace(t)
		long := strings.Repeat("long/", 60) + "file"
		plant(t, dir, "\xff\xfe", "grüße", long)
		ms, _ := pack(t, w, PackOptions{})
		got := names(ms)
		for _, want := range []string{"\xff\xfe", "grüße", long} {
			if !slices.Contains(got, want) {
				t.Errorf("%q is missing", want)
			}
		}
		if last := ms[len(ms)-1].header; last.PAXRecords["hdrcharset"] != "BINARY" || last.Format != tar.FormatPAX {
			t.Errorf("%+v", last)
		}
	})
	t.Run("268 compression, and equal trees give equal bytes", func(t *testing.T) {
		sums := map[Compression][]string{}
		for range 2 {
			w, dir := newWorkspace(t)
			plant(t, dir, "b/c", "a", "z/")
			must(t, w.WriteFile("big", bytes.Repeat([]byte("postern"), 500_000)))
			for _, n := range []string{"a", "b/c", "b", "z", "big"} {
				must(t, os.Chtimes(filepath.Join(dir, n), time.Now(), time.Unix(1e9, 5)))
			}
			for _, c := range []Compression{Uncompressed, Gzip, Zstd} {
				var buf bytes.Buffer
				_, err := w.PackTar(t.Context(), &buf, PackOptions{Compression: c})
				must(t, err)
				sums[c] = append(sums[c], fmt.Sprintf("%x", sha256.Sum256(buf.Bytes())))
				magic := map[Compression]string{Uncompressed: "a\x00", Gzip: "\x1f\x8b", Zstd: "\x28\xb5\x2f\xfd"}[c]
				if !bytes.HasPrefix(buf.Bytes(), []byte(magic)) {
					t.Errorf("%v: starts with %x", c, buf.Bytes()[:4])
				}
				if c != Uncompressed && buf.Len() > 100_000 {
					t.Errorf("%v: %d bytes", c, buf.Len())
				}
			}
		}
		for c, s := range sums {
			if s[0] != s[1] {
				t.Errorf("%v: the bytes differ", c)
			}
		}
		w, _ := newWorkspace(t)
		_, err := w.PackTar(t.Context(), io.Discard, PackOptions{Compression: 7})
		must(t, errIs(err, errors.ErrUnsupported))
	})
	t.Run("limits hold before the bytes are written", func(t *testing.T) {
		w, dir := newWorkspace(t)
		plant(t, dir, "a", "b", "d/e/f")
		for limit, l := range map[string]Limits{
			"max_entries=4": {MaxEntries: 4}, "max_entries=2": {MaxEntries: 2}, "max_bytes=6": {MaxBytes: 6}, "max_depth=2": {MaxDepth: 2}, "max_path=4": {MaxPath: 4},
		} {
			_, err := w.PackTar(t.Context(), io.Discard, PackOptions{Selection: Selection{Limits: l}})
			var le *LimitError
			if !errors.As(err, &le) || !strings.Contains(err.Error(), "workspace exceeds "+limit) {
				t.Errorf("%s: %v", limit, err)
			}
		}
		_, report := pack(t, w, PackOptions{Selection: Selection{Limits: Limits{5, 7, 3, 5}}})
		if report.Files != 3 || report.Bytes != 7 {
			t.Errorf("%+v", report)
		}
	})
	t.Run("a sparse giant costs nothing", func(t *testing.T) {
		w, dir := newWorkspace(t)
		plant(t, dir, "giant")
		must(t, os.Truncate(filepath.Join(dir, "giant"), 1<<42))
		n := new(countWriter)
		_, err := w.PackTar(t.Context(), n, PackOptions{})
		var le *LimitError
		if !errors.As(err, &le) || *n > 1<<20 {
			t.Errorf("%v after %d bytes", err, *n)
		}
	})
	t.Run("a cancelled context ends it", func(t *testing.T) {
		w, dir := newWorkspace(t)
		plant(t, dir, "a")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := w.PackTar(ctx, io.Discard, PackOptions{})
		must(t, errIs(err, context.Canceled))
	})
	t.Run("a writer that fails ends it", func(t *testing.T) {
		w, dir := newWorkspace(t)
		plant(t, dir, "a")
		for _, c := range []Compression{Uncompressed, Gzip, Zstd} {
			_, err := w.PackTar(t.Context(), failWriter{}, PackOptions{Compression: c})
			must(t, errIs(err, unix.ENOSPC))
		}
	})
	t.Run("findings are bounded", func(t *testing.T) {
		w, dir := newWorkspace(t)
		for i := range MaxFindings + 50 {
			must(t, os.Symlink("x", filepath.Join(dir, fmt.Sprint(i))))
		}
		_, report := pack(t, w, PackOptions{})
		if len(report.Skipped) != MaxFindings || report.Omitted != 50 {
			t.Errorf("%d and %d", len(report.Skipped), report.Omitted)
		}
		report = Report{}
		for range 1000 {
			report.Skip(strings.Repeat("p", MaxFindingBytes/10), Symlink)
			report.Change("q", Setuid)
		}
		if len(report.Skipped) != 9 && len(report.Skipped) != 10 || len(report.Changed) == 0 || report.Omitted == 0 {
			t.Errorf("%d, %d and %d", len(report.Skipped), len(report.Changed), report.Omitted)
		}
	})
	t.Run("271 five thousand levels", func(t *testing.T) {
		w, dir := newWorkspace(t)
		deepTree(t, dir, 5000, false)
		var buf bytes.Buffer
		report, err := w.PackTar(t.Context(), &buf, PackOptions{})
		must(t, err)
		to, _ := newWorkspace(t)
		restored, err := to.RestoreTar(t.Context(), &buf, RestoreOptions{})
		must(t, err)
		if report.Dirs != 5000 || restored.Dirs != 5000 || restored.Files != 1 || restored.Last != report.Last {
			t.Errorf("%d, %d", report.Dirs, restored.Dirs)
		}
		must(t, w.RemoveAll("."))
		must(t, to.RemoveAll("."))
	})
	t.Run("GNU tar and Python read it", func(t *testing.T) {
		w, dir := newWorkspace(t)
		plant(t, dir, "a", "d/b", "grüße", strings.Repeat("long/", 60)+"file")
		for _, c := range []Compression{Uncompressed, Gzip, Zstd} {
			archive := filepath.Join(t.TempDir(), "a.tar")
			f, err := os.Create(archive)
			must(t, err)
			_, err = w.PackTar(t.Context(), f, PackOptions{Compression: c})
			must(t, err)
			must(t, f.Close())
			to := t.TempDir()
			if out, err := exec.Command("tar", "-C", to, "-xaf", renamed(t, archive, c)).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if out, err := exec.Command("diff", "-r", dir, to).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", c, out)
			}
		}
	})
}

func renamed(t testing.TB, archive string, c Compression) string {
	to := archive + map[Compression]string{Uncompressed: "", Gzip: ".gz", Zstd: ".zst"}[c]
	must(t, os.Rename(archive, to))
	return to
}

type countWriter int64

func (n *countWriter) Write(p []byte) (int, error) { *n += countWriter(len(p)); return len(p), nil }

type failWriter struct{}

func (failWriter) Write([]byte) (int, error) { return 0, unix.ENOSPC }

// plantCapability gives a program cap_setuid, in the form the kernel keeps.
func plantCapability(t testing.TB, path string) {
	t.Helper()
	v2 := []byte{1, 0, 0, 2, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	if err := unix.Setxattr(path, "security.capability", v2, 0); err != nil {
		needed(t, "setting file capabilities: "+err.Error())
	}
}

// 263 needs a user to whom something can be unreadable.
func TestPackReportsTheUnreadable263(t *testing.T) {
	if !asNobody(t) {
		return
	}
	w, dir := newWorkspace(t)
	plant(t, dir, "a", "locked", "shut/f", "z")
	must(t, os.Chmod(filepath.Join(dir, "locked"), 0))
	must(t, os.Chmod(filepath.Join(dir, "shut"), 0))
	ms, report := pack(t, w, PackOptions{})
	same(t, "members", names(ms), "a", "shut/", "z")
	same(t, "skipped", findings(report.Skipped), "locked unreadable", "shut unreadable")
	must(t, os.Chmod(filepath.Join(dir, "shut"), 0o755))
}

// 263, 267: what happens to a file between being found and being read.
func TestPackOfFilesThatChange(t *testing.T) {
	t.Run("263 gone or swapped", func(t *testing.T) {
		w, dir := newWorkspace(t)
		out := outside(t, dir)
		plant(t, dir, "a", "gone", "swapped", "tree/f", "z")
		ms, report := pack(t, w, PackOptions{Selection: Selection{Exclude: func(p string) bool {
			at := filepath.Join(dir, p)
			switch p { // after the directory was read, before the file is opened
			case "gone":
				must(t, os.Remove(at))
			case "swapped":
				must(t, os.Remove(at))
				must(t, os.Symlink(out+"/secret", at))
			case "tree/f":
				must(t, os.Remove(at))
				must(t, unix.Mkfifo(at, 0o644))
			}
			return false
		}}})
		same(t, "members", names(ms), "a", "tree/", "z")
		same(t, "skipped", findings(report.Skipped), "gone unreadable", "swapped symlink", "tree/f fifo")
	})
	t.Run("267 cut short or grown while it is read", func(t *testing.T) {
		w, dir := newWorkspace(t)
		size := int64(80 * packBuffer) // more than is read ahead
		must(t, w.WriteFile("big", bytes.Repeat([]byte("x"), int(size))))
		must(t, w.WriteFile("grown", bytes.Repeat([]byte("y"), int(size))))
		plant(t, dir, "z")
		var buf bytes.Buffer
		// Change the files when their headers come out.
		to := writerFunc(func(p []byte) (int, error) {
			if buf.Len() > 512 && buf.Len() < 2*packBuffer { // big is being read
				must(t, os.Truncate(filepath.Join(dir, "big"), 40*packBuffer))
			}
			if n := int64(buf.Len()); n > size+packBuffer && n < size+3*packBuffer {
				must(t, os.Truncate(filepath.Join(dir, "grown"), 100*packBuffer))
			}
			return buf.Write(p)
		})
		report, err := w.PackTar(t.Context(), to, PackOptions{})
		must(t, err)
		ms := members(t, &buf)
		same(t, "members", names(ms), "big", "grown", "z")
		same(t, "changed", findings(report.Changed), "big torn")
		for _, m := range ms[:2] {
			if m.header.Size != size || int64(len(m.content)) != size {
				t.Errorf("%s: %d bytes", m.header.Name, len(m.content))
			}
		}
		if !strings.HasSuffix(ms[0].content, "\x00") || strings.Contains(ms[1].content, "\x00") {
			t.Error("zeros in the wrong place")
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestContents(t *testing.T) {
	w, dir := newWorkspace(t)
	outside(t, dir)
	plant(t, dir, "a", "d/b", "l->a", "h=../outside/secret", "p|", "x/y")
	var report Report
	var got []string
	for e, err := range w.Contents(t.Context(), Selection{Exclude: func(p string) bool { return p == "x" }}, &report) {
		must(t, err)
		got = append(got, e.Path())
		if e.Type() == 0 {
			f, err := e.Open()
			must(t, err)
			f.Close()
		}
	}
	same(t, "contents", got, "a", "d", "d/b")
	same(t, "skipped", findings(report.Skipped), "h hardlink", "l symlink", "p fifo")
	var failed error
	for e, err := range w.Contents(t.Context(), Selection{OnUnsafe: Fail}, &report) {
		if failed = err; err != nil && e != nil {
			t.Error("an entry with the error")
		}
	}
	must(t, errIs(failed, Hardlink))
}

func TestSanitize(t *testing.T) {
	w, dir := newWorkspace(t)
	out := outside(t, dir)
	must(t, unix.Chmod(filepath.Join(out, "secret"), 0o4755))
	plant(t, dir, "a", "d/suid", "sgid", "dir/", "h=../outside/secret", "l->"+out+"/secret", "p|", "in", "in2=in", "cap", "clean", "sticky/")
	at := func(n string) string { return filepath.Join(dir, n) }
	must(t, unix.Chmod(at("d/suid"), 0o4711))
	must(t, unix.Chmod(at("sgid"), 0o2755))
	must(t, unix.Chmod(at("dir"), 0o2775))
	must(t, unix.Chmod(at("in"), 0o6755))
	must(t, unix.Chmod(at("sticky"), 0o1777))
	want := []string{"d/suid setuid", "dir setgid", "in setuid", "in setgid", "sgid setgid"}
	if os.Geteuid() == 0 {
		plantCapability(t, at("cap"))
		plantDevice(t, dir, "null")
		want = []string{"cap capability", "d/suid setuid", "dir setgid", "in setuid", "in setgid", "null device", "sgid setgid"}
	}
	report, err := w.Sanitize(t.Context())
	must(t, err)
	same(t, "changed", findings(report.Changed), want...)
	same(t, "skipped", findings(report.Skipped), "h hardlink")
	for name, mode := range map[string]fs.FileMode{
		"d/suid": 0o711, "sgid": 0o755, "dir": 0o775 | fs.ModeDir, "in": 0o755, "clean": 0o644, "sticky": 0o777 | fs.ModeDir | fs.ModeSticky,
	} {
		if info, err := w.Stat(name); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
	if w.Exists("null") || !w.IsSymlink("l") || !w.Exists("p") {
		t.Error("the device stays, or something else went")
	}
	if n, err := unix.Getxattr(at("cap"), "security.capability", nil); err == nil {
		t.Errorf("%d bytes of capabilities left", n)
	}
	var st unix.Stat_t
	must(t, unix.Stat(filepath.Join(out, "secret"), &st))
	if st.Mode&0o7777 != 0o4755 {
		t.Errorf("the inode outside has mode %o", st.Mode)
	}
	again, err := w.Sanitize(t.Context())
	if err != nil || len(again.Changed) != 0 {
		t.Errorf("%+v %v", again, err)
	}
}

func TestSanitizeAsOwner(t *testing.T) {
	if os.Geteuid() == 0 {
		// Root plants the capability, its owner takes it away.
		dir, err := os.MkdirTemp("", "workspace-cap-*")
		must(t, err)
		defer os.RemoveAll(dir)
		must(t, os.Chmod(dir, 0o777))
		plant(t, dir, "prog")
		must(t, os.Chmod(filepath.Join(dir, "prog"), 0o755))
		must(t, os.Chown(filepath.Join(dir, "prog"), 65534, 65534))
		plantCapability(t, filepath.Join(dir, "prog"))
		t.Setenv("WORKSPACE_TEST_DIR", dir)
	}
	if !asNobody(t) {
		if dir := os.Getenv("WORKSPACE_TEST_DIR"); dir != "" {
			if n, err := unix.Getxattr(filepath.Join(dir, "prog"), "security.capability", nil); err == nil {
				t.Errorf("%d bytes of capabilities left", n)
			}
		}
		return
	}
	w, dir := newWorkspace(t)
	plant(t, dir, "suid", "hidden")
	must(t, unix.Chmod(filepath.Join(dir, "suid"), 0o4755))
	must(t, unix.Chmod(filepath.Join(dir, "hidden"), 0o4111))
	report, err := w.Sanitize(t.Context())
	must(t, err)
	same(t, "changed", findings(report.Changed), "hidden setuid", "suid setuid")
	if info, _ := w.Stat("hidden"); info.Mode() != 0o111 {
		t.Error(info.Mode())
	}
	if shared := os.Getenv("WORKSPACE_TEST_DIR"); shared != "" {
		w := openWorkspace(t, shared)
		report, err := w.Sanitize(t.Context())
		must(t, err)
		same(t, "changed", findings(report.Changed), "prog capability")
	}
}
