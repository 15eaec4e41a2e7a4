//go:build linux

package workspace

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// archive makes a tar stream. A name ending in a slash is a directory; a header with
// no size gets its name as content.
func archive(t testing.TB, hs ...tar.Header) *bytes.Buffer {
	t.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, h := range hs {
		content := ""
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
			if strings.HasSuffix(h.Name, "/") {
				h.Typeflag = tar.TypeDir
			}
		}
		if hasContent(h.Typeflag) {
			content = h.Name
			h.Size = int64(len(content))
		}
		if h.Mode == 0 && h.Typeflag != tar.TypeXGlobalHeader {
			h.Mode = 0o644
		}
		must(t, tw.WriteHeader(&h))
		_, err := io.WriteString(tw, content)
		must(t, err)
	}
	must(t, tw.Close())
	return &buf
}

func files(names ...string) []tar.Header {
	var hs []tar.Header
	for _, n := range names {
		hs = append(hs, tar.Header{Name: n})
	}
	return hs
}

// tree lists a directory: names, with a slash for directories, and contents.
func tree(t testing.TB, dir string) []string {
	t.Helper()
	var out []string
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		switch {
		case d.IsDir():
			rel += "/"
		case d.Type() == 0:
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			rel += "=" + string(data)
		default:
			rel += " " + d.Type().String()
		}
		out = append(out, rel)
		return nil
	}))
	return out
}

func TestRestoreTar(t *testing.T) {
	t.Run("274 only files and directories, everything else reported", func(t *testing.T) {
		w, dir := newWorkspace(t)
		out := outside(t, dir)
		report, err := w.RestoreTar(t.Context(), archive(t,
			tar.Header{Name: "a"},
			tar.Header{Name: "d/"},
			tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: out},
			tar.Header{Name: "l/pwned"},
			tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "../outside/secret"},
			tar.Header{Name: "c", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3},
			tar.Header{Name: "b", Typeflag: tar.TypeBlock},
			tar.Header{Name: "p", Typeflag: tar.TypeFifo},
			tar.Header{Name: "/abs"},
			tar.Header{Name: "../up"},
			tar.Header{Name: "d/../../up"},
			tar.Header{Name: "../ln", Typeflag: tar.TypeSymlink, Linkname: "x"},
			tar.Header{Name: "z"},
		), RestoreOptions{})
		must(t, err)
		same(t, "tree", tree(t, dir), "a=a", "d/", "l/", "l/pwned=l/pwned", "z=z")
		same(t, "skipped", findings(report.Skipped), "l symlink", "h hardlink", "c special", "b special", "p special",
			"/abs escaping-name", "../up escaping-name", "d/../../up escaping-name", "../ln escaping-name")
		if report.OK() || report.Files != 3 || report.Dirs != 2 || report.Bytes != int64(len("a"+"l/pwned"+"z")) || report.Last != "z" {
			t.Errorf("%+v", report)
		}
		intact(t, out)
	})
	t.Run("275 names are normalised", func(t *testing.T) {
		w, dir := newWorkspace(t)
		report, err := w.RestoreTar(t.Context(), archive(t, files("./", "./ok", "x//y", ".//d/./")...), RestoreOptions{})
		must(t, err)
		same(t, "tree", tree(t, dir), "d/", "ok=./ok", "x/", "x/y=x//y")
		if !report.OK() {
			t.Errorf("%+v", report)
		}
	})
	t.Run("276 parents are made, modes and times are not kept", func(t *testing.T) {
		w, dir := newWorkspace(t)
		old := unix.Umask(0)
		defer unix.Umask(old)
		_, err := w.RestoreTar(t.Context(), archive(t,
			tar.Header{Name: "p/q/f", Mode: 0o755, ModTime: time.Unix(1e9, 0)}, tar.Header{Name: "d/", Mode: 0o777}), RestoreOptions{})
		must(t, err)
		for name, mode := range map[string]fs.FileMode{"p": 0o700 | fs.ModeDir, "p/q": 0o700 | fs.ModeDir, "p/q/f": 0o600, "d": 0o700 | fs.ModeDir} {
			if info, err := os.Lstat(filepath.Join(dir, name)); err != nil || info.Mode() != mode || info.ModTime().Unix() == 1e9 {
				t.Errorf("%s: %v %v", name, info, err)
			}
		}
	})
	t.Run("modes, times and owner on demand", func(t *testing.T) {
		w, dir := newWorkspace(t)
		opts := RestoreOptions{PreserveModes: true, PreserveTimes: true}
		if os.Geteuid() == 0 {
			opts.Owner = &Owner{1234, 1235}
		}
		report, err := w.RestoreTar(t.Context(), archive(t,
			tar.Header{Name: "d/", Mode: 0o2555},
			tar.Header{Name: "d/f", Mode: 0o4751, ModTime: time.Unix(1e9, 0)},
			tar.Header{Name: "c", Mode: 0o640, PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "x"}},
		), opts)
		must(t, err)
		same(t, "changed", findings(report.Changed), "d setgid", "d/f setuid", "c capability")
		for name, mode := range map[string]fs.FileMode{"d": 0o755 | fs.ModeDir, "d/f": 0o751, "c": 0o640} {
			info, err := os.Lstat(filepath.Join(dir, name))
			if err != nil || info.Mode() != mode {
				t.Errorf("%s: %v %v", name, info.Mode(), err)
			}
			if name == "d/f" && info.ModTime().Unix() != 1e9 {
				t.Error(info.ModTime())
			}
			ws, err := w.Stat(name)
			must(t, err)
			if s := ws.Sys().(*Stat); opts.Owner != nil && (s.UID != 1234 || s.GID != 1235) {
				t.Errorf("%s: %+v", name, s)
			}
		}
		if _, err := unix.Getxattr(filepath.Join(dir, "c"), "security.capability", nil); err == nil {
			t.Error("a capability was restored")
		}
	})
	t.Run("277 on unsafe fail stops at the first", func(t *testing.T) {
		w, dir := newWorkspace(t)
		report, err := w.RestoreTar(t.Context(), archive(t,
			tar.Header{Name: "a"}, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "x"}, tar.Header{Name: "z"}), RestoreOptions{OnUnsafe: Fail})
		must(t, errIs(err, Symlink))
		if !strings.Contains(err.Error(), "neutralized symlink entry 'l'") {
			t.Error(err)
		}
		same(t, "tree", tree(t, dir), "a=a")
		if report.Last != "a" {
			t.Errorf("%+v", report)
		}
	})
	t.Run("278 and 279 limits", func(t *testing.T) {
		link := tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "x"}
		global := tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"V.k": "v"}}
		for _, tt := range []struct {
			limits  Limits
			hs      []tar.Header
			message string
			tree    []string
		}{
			{Limits{MaxEntries: 2}, files("a", "b", "c"), "archive exceeds max_entries=2", []string{"a=a", "b=b"}},
			{Limits{MaxEntries: 2}, []tar.Header{link, {Name: "a"}, {Name: "b"}}, "archive exceeds max_entries=2", []string{"a=a"}},
			{Limits{MaxEntries: 1}, []tar.Header{global, {Name: "a"}}, "archive exceeds max_entries=1", nil},
			{Limits{MaxEntries: 3}, files("a", "b", "c"), "", []string{"a=a", "b=b", "c=c"}},
			{Limits{MaxBytes: 3}, files("a", "bb", "c"), "archive exceeds max_bytes=3", []string{"a=a", "bb=bb"}},
			{Limits{MaxBytes: 2}, files("a", "bb"), "archive exceeds max_bytes=2", []string{"a=a"}}, // nothing of bb
			{Limits{MaxBytes: 3}, files("a", "bb"), "", []string{"a=a", "bb=bb"}},
			{Limits{MaxBytes: 4}, files("/aaaaa", "b"), "archive exceeds max_bytes=4", nil},
			{Limits{MaxDepth: 2}, files("a/b", "a/b/c"), "archive exceeds max_depth=2", []string{"a/", "a/b=a/b"}},
			{Limits{MaxPath: 3}, files("a/b", "a/bc"), "archive exceeds max_path=3", []string{"a/", "a/b=a/b"}},
			{Limits{Unlimited, Unlimited, Unlimited, Unlimited}, files("a", "b/c"), "", []string{"a=a", "b/", "b/c=b/c"}},
		} {
			w, dir := newWorkspace(t)
			_, err := w.RestoreTar(t.Context(), archive(t, tt.hs...), RestoreOptions{Limits: tt.limits})
			var le *LimitError
			if got := errors.As(err, &le); got != (tt.message != "") || got && !strings.Contains(err.Error(), tt.message) {
				t.Errorf("%+v: %v", tt.limits, err)
			}
			same(t, fmt.Sprintf("%+v", tt.limits), tree(t, dir), tt.tree...)
		}
	})
	t.Run("280 what is planted under a member's name is never followed, and does not stay", func(t *testing.T) {
		w, dir := newWorkspace(t)
		out := outside(t, dir)
		plant(t, dir, "l->"+out+"/secret", "dangling->"+out+"/new", "p|", "h=../outside/secret", "s@")
		report, err := w.RestoreTar(t.Context(), archive(t, files("l", "dangling", "p", "h", "s")...), RestoreOptions{})
		must(t, err)
		same(t, "tree", tree(t, dir), "dangling=dangling", "h=h", "l=l", "p=p", "s=s")
		same(t, "changed", findings(report.Changed), "l symlink", "dangling symlink", "p fifo", "h hardlink", "s socket")
		intact(t, out)

		plant(t, dir, "l2->"+out+"/secret")
		_, err = w.RestoreTar(t.Context(), archive(t, files("l2")...), RestoreOptions{OnUnsafe: Fail})
		must(t, errIs(err, Symlink))
		if !w.IsSymlink("l2") {
			t.Error("replaced all the same")
		}
		intact(t, out)
	})
	t.Run("281 something else where a directory is needed, and the reverse", func(t *testing.T) {
		for _, tt := range []struct {
			plant  string
			member string
			want   error
		}{
			{"x->OUT", "x/f", NotDirectory},
			{"x->OUT", "x/f", Symlink},
			{"x->OUT", "x/", NotDirectory},
			{"x", "x/f", NotDirectory},
			{"x", "x/", NotDirectory},
			{"x|", "x/f", FIFO},
			{"x/", "x", Directory},
			{"x/", "x", unix.EISDIR},
			{"x/y", "x", Directory},
		} {
			w, dir := newWorkspace(t)
			out := outside(t, dir)
			plant(t, dir, strings.ReplaceAll(tt.plant, "OUT", out))
			before := tree(t, dir)
			_, err := w.RestoreTar(t.Context(), archive(t, files(tt.member)...), RestoreOptions{})
			if !errors.Is(err, tt.want) {
				t.Errorf("%+v: %v", tt, err)
			}
			if tt.want == NotDirectory && !strings.Contains(err.Error(), "exists and is not a directory") {
				t.Error(err)
			}
			same(t, tt.plant, tree(t, dir), before...)
			intact(t, out)
		}
	})
	t.Run("282 an existing file is overwritten and keeps its mode", func(t *testing.T) {
		w, dir := newWorkspace(t)
		must(t, os.WriteFile(filepath.Join(dir, "f"), []byte("much longer than before"), 0o644))
		must(t, unix.Chmod(filepath.Join(dir, "f"), 0o4751))
		report, err := w.RestoreTar(t.Context(), archive(t, files("f", "f")...), RestoreOptions{})
		must(t, err)
		same(t, "tree", tree(t, dir), "f=f")
		if info, _ := w.Stat("f"); info.Mode() != 0o751 || len(report.Changed) != 0 {
			t.Errorf("%v %+v", info.Mode(), report)
		}
	})
	t.Run("273 compressed streams are recognised", func(t *testing.T) {
		plain := archive(t, files("a", "d/b")...).Bytes()
		for tool, args := range map[string][]string{
			"gzip": {"-c"}, "bzip2": {"-c"}, "zstd": {"-c", "-q", "-19"}, "cat": nil,
		} {
			cmd := exec.Command(tool, args...)
			cmd.Stdin = bytes.NewReader(plain)
			packed, err := cmd.Output()
			if errors.Is(err, exec.ErrNotFound) {
				needed(t, tool+" is not installed")
			}
			must(t, err)
			w, dir := newWorkspace(t)
			_, err = w.RestoreTar(t.Context(), bytes.NewReader(packed), RestoreOptions{})
			must(t, err)
			same(t, tool, tree(t, dir), "a=a", "d/", "d/b=d/b")

			// Cut off, it is an error, not a short tree.
			if tool != "cat" {
				_, err = w.RestoreTar(t.Context(), bytes.NewReader(packed[:len(packed)-5]), RestoreOptions{})
				must(t, errIs(err, io.ErrUnexpectedEOF))
			}
		}
	})
	t.Run("273 formats that are not read are named", func(t *testing.T) {
		for format, magic := range map[string]string{"xz": "\xfd7zXZ\x00", "lz4": "\x04\x22\x4d\x18", "lzip": "LZIP"} {
			w, _ := newWorkspace(t)
			_, err := w.RestoreTar(t.Context(), strings.NewReader(magic+strings.Repeat("\x01", 600)), RestoreOptions{})
			var ce *CompressionError
			if !errors.As(err, &ce) || ce.Format != format || !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), format) {
				t.Errorf("%s: %v", format, err)
			}
		}
	})
	t.Run("a name that looks like a compressed stream", func(t *testing.T) {
		for _, name := range []string{"BZh91AY&SY", "\x1f\x8b\x08", "\xfd7zXZ", "\x28\xb5\x2f\xfd"} {
			w, _ := newWorkspace(t)
			var buf bytes.Buffer
			tw := tar.NewWriter(&buf)
			must(t, tw.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg, Format: tar.FormatGNU}))
			must(t, tw.Close())
			_, err := w.RestoreTar(t.Context(), &buf, RestoreOptions{})
			must(t, err)
			if !w.IsFile(name) {
				t.Errorf("%q is missing", name)
			}
		}
	})
	t.Run("a broken archive says what was written and leaves no half file", func(t *testing.T) {
		w, dir := newWorkspace(t)
		whole := archive(t, files("a", "b", "c")...).Bytes()
		report, err := w.RestoreTar(t.Context(), bytes.NewReader(whole[:3*512]), RestoreOptions{}) // within b: header, no content
		must(t, errIs(err, io.ErrUnexpectedEOF))
		same(t, "tree", tree(t, dir), "a=a")
		if report.Last != "a" || report.Files != 1 || report.Bytes != 1 {
			t.Errorf("%+v", report)
		}
		_, err = w.RestoreTar(t.Context(), strings.NewReader(""), RestoreOptions{})
		must(t, errIs(err, io.ErrUnexpectedEOF))
		_, err = w.RestoreTar(t.Context(), strings.NewReader(strings.Repeat("garbage ", 1000)), RestoreOptions{})
		must(t, errIs(err, tar.ErrHeader))
	})
	t.Run("a cancelled context ends it", func(t *testing.T) {
		w, _ := newWorkspace(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := w.RestoreTar(ctx, archive(t, files("a")...), RestoreOptions{})
		must(t, errIs(err, context.Canceled))
	})
	t.Run("trailing garbage is ignored", func(t *testing.T) {
		w, dir := newWorkspace(t)
		r := io.MultiReader(archive(t, files("a")...), strings.NewReader("garbage"), zeros{})
		_, err := w.RestoreTar(t.Context(), r, RestoreOptions{})
		must(t, err)
		same(t, "tree", tree(t, dir), "a=a")
	})
	t.Run("headers without end are not read for ever", func(t *testing.T) {
		w, _ := newWorkspace(t)
		pax := archive(t, tar.Header{Name: "f", Format: tar.FormatPAX, PAXRecords: map[string]string{"V.k": strings.Repeat("v", 400)}}).Bytes()[:2*512]
		_, err := w.RestoreTar(t.Context(), &repeat{block: pax}, RestoreOptions{})
		var le *LimitError
		if !errors.As(err, &le) || le.Limit != "max_header" {
			t.Error(err)
		}
		skipped := archive(t, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "x"}).Bytes()[:512]
		_, err = w.RestoreTar(t.Context(), &repeat{block: skipped}, RestoreOptions{Limits: Limits{MaxEntries: 1000}})
		if !errors.As(err, &le) || le.Limit != "max_entries" {
			t.Error(err)
		}
	})
	t.Run("names no file system takes", func(t *testing.T) {
		w, dir := newWorkspace(t)
		report, err := w.RestoreTar(t.Context(), archive(t, files(strings.Repeat("n", 256), "a")...), RestoreOptions{})
		must(t, err)
		if len(report.Skipped) != 1 || report.Skipped[0].Reason != BadName {
			t.Errorf("%+v", report)
		}
		same(t, "tree", tree(t, dir), "a=a")
	})
	t.Run("names that differ in case only", func(t *testing.T) {
		w, dir := newWorkspace(t)
		_, err := w.RestoreTar(t.Context(), archive(t, files("README", "readme", "ReadMe/x")...), RestoreOptions{})
		must(t, err)
		same(t, "tree", tree(t, dir), "README=README", "ReadMe/", "ReadMe/x=ReadMe/x", "readme=readme")
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type repeat struct {
	block []byte
	at    int
}

func (r *repeat) Read(p []byte) (int, error) {
	n := copy(p, r.block[r.at:])
	r.at = (r.at + n) % len(r.block)
	return n, nil
}

// 285: the oddities of those who write tar.
func TestRestoreOfEveryDialect285(t *testing.T) {
	t.Run("old, contiguous and sparse files are regular", func(t *testing.T) {
		for typ, name := range map[byte]string{'\x00': "v7", tar.TypeCont: "contiguous"} {
			buf := archive(t, files(name)...).Bytes()
			buf[156] = typ
			rechecksum(buf)
			w, dir := newWorkspace(t)
			_, err := w.RestoreTar(t.Context(), bytes.NewReader(buf), RestoreOptions{})
			must(t, err)
			same(t, name, tree(t, dir), name+"="+name)
		}
	})
	for _, format := range []string{"gnu", "pax", "posix", "oldgnu", "ustar", "v7"} {
		t.Run("GNU tar --format="+format, func(t *testing.T) {
			_, from := newWorkspace(t)
			long := strings.Repeat("l", 90)
			plant(t, from, "a", "d/b", "h=a", "l->/etc/passwd", long)
			unsafe := 2
			if format != "v7" { // which has no FIFOs
				plant(t, from, "p|")
				unsafe++
			}
			if format != "ustar" && format != "v7" {
				plant(t, from, strings.Repeat("x"+long+"/", 3)+"deep", "grüße\xff")
			}
			args := []string{"-C", from, "--format=" + format, "-cf", "-"}
			sparse := format != "ustar" && format != "v7"
			if sparse {
				args = append(args, "--sparse")
				f, err := os.Create(filepath.Join(from, "sparse"))
				must(t, err)
				_, err = f.WriteAt([]byte("end"), 1<<20)
				must(t, err)
				must(t, f.Close())
			}
			out, err := exec.Command("tar", append(args, ".")...).Output()
			if errors.Is(err, exec.ErrNotFound) {
				needed(t, "tar is not installed")
			}
			must(t, err)
			w, dir := newWorkspace(t)
			report, err := w.RestoreTar(t.Context(), bytes.NewReader(out), RestoreOptions{})
			must(t, err)
			for _, f := range report.Skipped {
				if f.Reason != Hardlink && f.Reason != Symlink && f.Reason != Special {
					t.Errorf("skipped %v", f)
				}
				must(t, os.Remove(filepath.Join(from, f.Path)))
			}
			if len(report.Skipped) != unsafe {
				t.Errorf("%+v", report.Skipped)
			}
			if diff, err := exec.Command("diff", "-r", from, dir).CombinedOutput(); err != nil {
				t.Errorf("%s", diff)
			}
			if sparse && !bytes.Contains(out, []byte("end")) || len(out) > 1<<20 {
				t.Error("the archive is not sparse, so this tests nothing")
			}
		})
	}
	t.Run("a sparse exabyte is refused before it is written", func(t *testing.T) {
		_, from := newWorkspace(t)
		plant(t, from, "giant")
		must(t, os.Truncate(filepath.Join(from, "giant"), 1<<42))
		out, err := exec.Command("tar", "-C", from, "--format=gnu", "--sparse", "-cf", "-", ".").Output()
		must(t, err)
		w, dir := newWorkspace(t)
		_, err = w.RestoreTar(t.Context(), bytes.NewReader(out), RestoreOptions{})
		var le *LimitError
		if !errors.As(err, &le) {
			t.Error(err)
		}
		same(t, "tree", tree(t, dir))
	})
	t.Run("global headers are passed over", func(t *testing.T) {
		w, dir := newWorkspace(t)
		report, err := w.RestoreTar(t.Context(), archive(t,
			tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "git", "path": "../evil"}},
			tar.Header{Name: "a"}), RestoreOptions{})
		must(t, err)
		same(t, "tree", tree(t, dir), "a=a")
		if !report.OK() {
			t.Errorf("%+v", report)
		}
	})
	t.Run("GNU oddities are special", func(t *testing.T) {
		for _, typ := range []byte("DMVNZ") {
			buf := archive(t, files("odd", "a")...).Bytes()
			buf[156] = typ
			rechecksum(buf)
			w, dir := newWorkspace(t)
			report, err := w.RestoreTar(t.Context(), bytes.NewReader(buf), RestoreOptions{})
			must(t, err)
			same(t, "tree", tree(t, dir), "a=a")
			same(t, "skipped", findings(report.Skipped), "odd special")
		}
	})
}

// rechecksum repairs the first header of an archive.
func rechecksum(b []byte) {
	sum := int64(8 * ' ')
	for i, c := range b[:blockSize] {
		if i < 148 || i >= 156 {
			sum += int64(c)
		}
	}
	copy(b[148:156], fmt.Sprintf("%06o\x00 ", sum))
}

// 283: all of it works for anybody.
func TestPackAndRestoreUnprivileged283(t *testing.T) {
	if !asNobody(t) {
		return
	}
	w, dir := newWorkspace(t)
	plant(t, dir, "a", "d/b", "l->/etc/passwd", "p|")
	var buf bytes.Buffer
	_, err := w.PackTar(t.Context(), &buf, PackOptions{Compression: Zstd})
	must(t, err)
	to, toDir := newWorkspace(t)
	_, err = to.RestoreTar(t.Context(), bytes.NewReader(buf.Bytes()), RestoreOptions{PreserveModes: true, PreserveTimes: true})
	must(t, err)
	same(t, "tree", tree(t, toDir), "a=a", "d/", "d/b=d/b")
	_, err = to.RestoreTar(t.Context(), bytes.NewReader(buf.Bytes()), RestoreOptions{Owner: &Owner{0, 0}})
	must(t, errIs(err, unix.EPERM))
}

// What a pack says it packed is what a restore brings back, whatever the names.
func TestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	w, dir := newWorkspace(t)
	for range 300 {
		name := make([]byte, 1+rng.IntN(12))
		for i := range name {
			name[i] = "ab \n\\\xff/é*"[rng.IntN(10)]
		}
		path := filepath.Join(dir, string(name))
		os.MkdirAll(filepath.Dir(path), 0o755)
		os.WriteFile(path, bytes.Repeat(name, rng.IntN(1000)), 0o644)
	}
	must(t, w.WriteFile("big", bytes.Repeat([]byte("larger than any buffer"), 1_000_000)))
	for _, c := range []Compression{Uncompressed, Gzip, Zstd} {
		var first, second bytes.Buffer
		packed, err := w.PackTar(t.Context(), &first, PackOptions{Compression: c})
		must(t, err)
		to, toDir := newWorkspace(t)
		restored, err := to.RestoreTar(t.Context(), bytes.NewReader(first.Bytes()), RestoreOptions{PreserveModes: true, PreserveTimes: true})
		must(t, err)
		same(t, "tree", tree(t, toDir), tree(t, dir)...)
		if packed.Files != restored.Files || packed.Bytes != restored.Bytes || packed.Dirs != restored.Dirs {
			t.Errorf("packed %+v\nrestored %+v", packed, restored)
		}
		_, err = to.PackTar(t.Context(), &second, PackOptions{Compression: c})
		must(t, err)
		if a, b := names(members(t, plainOf(t, &first))), names(members(t, plainOf(t, &second))); fmt.Sprint(a) != fmt.Sprint(b) {
			t.Error("the second archive has other names")
		}
	}
}

func plainOf(t testing.TB, r io.Reader) io.Reader {
	plain, release, err := decompress(r)
	must(t, err)
	t.Cleanup(release)
	return plain
}

func TestVetHeader284(t *testing.T) {
	for _, tt := range []struct {
		in   tar.Header
		want Reason
	}{
		{tar.Header{Name: "/abs", Typeflag: tar.TypeReg}, Escape},
		{tar.Header{Name: "a/../../b", Typeflag: tar.TypeReg}, Escape},
		{tar.Header{Name: "a\x00", Typeflag: tar.TypeReg}, BadName},
		{tar.Header{Name: "l", Typeflag: tar.TypeSymlink}, Symlink},
		{tar.Header{Name: "l", Typeflag: tar.TypeLink}, Hardlink},
		{tar.Header{Name: "l", Typeflag: tar.TypeFifo}, Special},
		{tar.Header{Name: "l", Typeflag: tar.TypeChar}, Special},
		{tar.Header{Name: "l", Typeflag: tar.TypeXGlobalHeader}, Special},
	} {
		if h, err := VetHeader(&tt.in); h != nil || !errors.Is(err, tt.want) {
			t.Errorf("%q: %v %v, want %v", tt.in.Name, h, err, tt.want)
		}
	}
	in := &tar.Header{
		Name: "./a//b", Typeflag: tar.TypeGNUSparse, Mode: 0o104755, Uid: 7, Gid: 8, Uname: "u", Gname: "g", Size: 3, Linkname: "x",
		PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "x", "comment": "c"},
	}
	h, err := VetHeader(in)
	must(t, err)
	if h.Name != "a/b" || h.Typeflag != tar.TypeReg || h.Mode != 0o755 || h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.Gname != "" ||
		h.Linkname != "" || h.Size != 3 || len(h.PAXRecords) != 1 || h.PAXRecords["comment"] != "c" {
		t.Errorf("%+v", h)
	}
	if in.Name != "./a//b" || len(in.PAXRecords) != 2 {
		t.Error("the original was changed")
	}
	if h, err = VetHeader(&tar.Header{Name: "./d/", Typeflag: tar.TypeDir, Mode: 0o1777}); err != nil || h.Name != "d/" || h.Mode != 0o777 {
		t.Errorf("%+v %v", h, err)
	}
}
