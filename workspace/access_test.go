//go:build linux

package workspace

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

func sigignIO() { signal.Ignore(unix.SIGIO) }

func TestOpen(t *testing.T) {
	t.Run("234 an existing directory, closed twice", func(t *testing.T) {
		w, dir := newWorkspace(t)
		must(t, w.Close())
		must(t, w.Close())
		if w.HostRoot() != dir { // 255
			t.Errorf("HostRoot = %q, want %q", w.HostRoot(), dir)
		}
	})
	t.Run("235 a link in the prefix is followed", func(t *testing.T) {
		_, dir := newWorkspace(t)
		plant(t, dir, "f", "l->f")
		link := filepath.Join(filepath.Dir(dir), "link")
		must(t, os.Symlink(dir, link))
		w := openWorkspace(t, link)
		if data, err := w.ReadFile("f"); err != nil || string(data) != "f" {
			t.Errorf("ReadFile = %q, %v", data, err)
		}
		if _, err := w.ReadFile("l"); !errors.Is(err, Symlink) {
			t.Errorf("a link below the anchor: %v", err)
		}
	})
	t.Run("236 the anchor must be a directory", func(t *testing.T) {
		_, dir := newWorkspace(t)
		plant(t, dir, "f", "p|")
		for name, want := range map[string]error{"f": syscall.ENOTDIR, "p": syscall.ENOTDIR, "none": fs.ErrNotExist} {
			if w, err := Open(filepath.Join(dir, name)); !errors.Is(err, want) {
				t.Errorf("Open(%s) = %v, %v, want %v", name, w, err, want)
			}
		}
	})
	t.Run("237 use after close", func(t *testing.T) {
		w, dir := newWorkspace(t)
		plant(t, dir, "f")
		must(t, w.Close())
		for op, err := range everyMethod(w, "f") {
			if !errors.Is(err, ErrClosed) || !errors.Is(err, fs.ErrClosed) || !strings.Contains(err.Error(), "workspace is closed") {
				t.Errorf("%s after Close: %v", op, err)
			}
		}
		if w.Exists("f") || w.IsFile("f") {
			t.Error("a closed workspace has files")
		}
	})
	t.Run("286 an unreachable workspace is closed by the collector, with a warning", func(t *testing.T) {
		closed, dir := newWorkspace(t)
		must(t, closed.Close())
		warnings := defaultLog(t)
		held := func() bool {
			for _, fd := range openFDs() {
				if strings.HasSuffix(fd, "="+dir) {
					return true
				}
			}
			return false
		}
		before := len(openFDs())
		func() {
			w, err := Open(dir)
			must(t, err)
			if !held() {
				t.Fatal("the test cannot see the descriptor")
			}
			runtime.KeepAlive(w)
		}()
		for range 1000 {
			runtime.GC()
			if len(openFDs()) <= before && warnings.String() != "" {
				break
			}
			runtime.Gosched()
		}
		if held() {
			t.Error("the descriptor is still open")
		}
		// There is nothing to say of the one that was closed.
		if w := warnings.String(); strings.Count(w, "\n") != 1 || !strings.Contains(w, "level=WARN") || !strings.Contains(w, "workspace="+dir) {
			t.Errorf("warnings: %q", w)
		}
	})
}

// defaultLog has the default logger write to a buffer until the test ends.
func defaultLog(t *testing.T) *lockedBuffer {
	logger, out, flags := slog.Default(), log.Writer(), log.Flags()
	t.Cleanup(func() {
		slog.SetDefault(logger)
		log.SetOutput(out)
		log.SetFlags(flags)
	})
	b := &lockedBuffer{}
	slog.SetDefault(slog.New(slog.NewTextHandler(b, nil)))
	return b
}

// lockedBuffer is a buffer that cleanups write to from a goroutine of the runtime's.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// everyMethod calls all that take a name, and gives the errors.
func everyMethod(w *Workspace, name string) map[string]error {
	errs := map[string]error{}
	f, err := w.Open(name)
	errs["Open"] = err
	if err == nil {
		f.Close()
	}
	_, errs["ReadFile"] = w.ReadFile(name)
	_, errs["Stat"] = w.Stat(name)
	_, errs["ReadDir"] = w.ReadDir(name)
	for _, err := range w.Walk(name) {
		errs["Walk"] = err
		break
	}
	f, err = w.Create(name)
	errs["Create"] = err
	if err == nil {
		f.Close()
	}
	errs["WriteFile"] = w.WriteFile(name, nil)
	errs["Mkdir"] = w.Mkdir(name)
	errs["MkdirAll"] = w.MkdirAll(name)
	errs["Chmod"] = w.Chmod(name, 0o600)
	errs["Chown"] = w.Chown(name, os.Getuid(), os.Getgid())
	errs["Rename"] = w.Rename(name, "x")
	errs["Remove"] = w.Remove(name)
	errs["RemoveAll"] = w.RemoveAll(name)
	return errs
}

func TestNames(t *testing.T) {
	tests := []struct {
		promise int
		name    string
		want    error
	}{
		{238, "/etc/passwd", Escape},
		{238, "/", Escape},
		{238, "//etc", Escape},
		{239, "..", Escape},
		{239, "a/../b", Escape},
		{239, "a/b/../../..", Escape},
		{239, "./..", Escape},
		{239, "../" + "ws", Escape},
		{241, "a\x00b", BadName},
		{241, "\x00", BadName},
		{241, "../\x00", BadName},
		{241, strings.Repeat("n", 256), BadName},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d %.20q", tt.promise, tt.name), func(t *testing.T) {
			w, dir := newWorkspace(t)
			plant(t, dir, "a/b", "b")
			out := outside(t, dir)
			for op, err := range everyMethod(w, tt.name) {
				if !errors.Is(err, tt.want) || !errors.Is(err, fs.ErrInvalid) {
					t.Errorf("%s: %v, want %v", op, err, tt.want)
				}
				var e *Error
				if !errors.As(err, &e) || e.Path != tt.name {
					t.Errorf("%s: error names %+v", op, e)
				}
			}
			if w.Exists(tt.name) || w.IsDir(tt.name) || w.IsFile(tt.name) || w.IsSymlink(tt.name) {
				t.Error("a refused name exists")
			}
			intact(t, out)
		})
	}
	t.Run("238 the message", func(t *testing.T) {
		w, _ := newWorkspace(t)
		_, err := w.ReadFile("/etc/passwd")
		if !strings.Contains(err.Error(), "absolute path escapes the workspace") || !strings.Contains(err.Error(), "/etc/passwd") {
			t.Error(err)
		}
	})
	t.Run("240 dots and doubled slashes are dropped", func(t *testing.T) {
		w, dir := newWorkspace(t)
		plant(t, dir, "a/b")
		for _, name := range []string{"a/b", "a//b", "./a/./b", "a/b/", ".//a///b//."} {
			if data, err := w.ReadFile(name); err != nil || string(data) != "a/b" {
				t.Errorf("ReadFile(%q) = %q, %v", name, data, err)
			}
		}
		for _, name := range []string{"", ".", "./", "././/."} {
			if !w.IsDir(name) {
				t.Errorf("IsDir(%q) is false", name)
			}
		}
	})
	t.Run("249 a file's name is relative, the root's is a dot", func(t *testing.T) {
		w, dir := newWorkspace(t)
		plant(t, dir, "a/b")
		for name, want := range map[string]string{"./a//b": "a/b", "": ".", ".": "."} {
			f, err := w.Open(name)
			must(t, err)
			if f.Name() != want {
				t.Errorf("Open(%q).Name() = %q, want %q", name, f.Name(), want)
			}
			f.Close()
		}
	})
	t.Run("errors quote and cap what the guest named", func(t *testing.T) {
		w, _ := newWorkspace(t)
		name := "x\n2026 WARNING forged\x1b[31m\xff" + strings.Repeat("/y", 5000)
		_, err := w.ReadFile(name)
		text := err.Error()
		if strings.ContainsAny(text, "\n\x1b") || !utf8.ValidString(text) || len(text) > 1000 {
			t.Errorf("%d bytes: %q", len(text), text)
		}
	})
}

// 250: whatever goes wrong, and whatever is asked, the host's path does not come out.
func TestNoHostPathIsHandedOut(t *testing.T) {
	w, dir := newWorkspace(t)
	plant(t, dir, "f", "d/", "l->/etc/passwd", "p|")
	for _, name := range []string{"f", "d", "l", "p", "none", "none/x", "f/x", "/abs", ".."} {
		for op, err := range everyMethod(w, name) {
			if err != nil && strings.Contains(err.Error(), dir) {
				t.Errorf("%s(%s): %v", op, name, err)
			}
		}
		plant(t, dir, "f")
	}
	f, err := w.Open("f")
	must(t, err)
	f.Close()
	_, err = f.Read(make([]byte, 1))
	if err == nil || strings.Contains(err.Error(), dir) {
		t.Error(err)
	}
	typ := reflect.TypeFor[*Workspace]()
	for m := range typ.NumMethod() {
		method := typ.Method(m)
		for out := range method.Type.NumOut() {
			if method.Type.Out(out).Kind() == reflect.String && method.Name != "HostRoot" {
				t.Errorf("%s returns a string", method.Name)
			}
		}
	}
}

func TestReadingThroughALinkFails(t *testing.T) {
	links := []struct {
		promise    int
		plant      string
		name, what string
	}{
		{242, "l->OUT/secret", "l", "absolute"},
		{242, "l->../outside/secret", "l", "relative"},
		{242, "l->OUT", "l", "to a directory"},
		{242, "l->/proc/self/environ", "l", "to a magic file"},
		{242, "l->/proc/self/root", "l", "to a magic link"},
		{242, "l->/", "l", "to the host's root"},
		{242, "l->f", "l", "to a file inside"},
		{242, "l->OUT/secret", "l/", "with a slash behind it"},
		{242, "l->l", "l", "to itself"},
		{242, "l->nowhere", "l", "dangling"},
		{243, "l->OUT", "l/secret", "as a component"},
		{243, "l->..", "l/outside/secret", "to the parent"},
		{243, "l->.", "l/f", "to the workspace"},
		{243, "l->/proc/self/fd", "l/0", "into /proc"},
		{243, "d/l->../..", "d/l/outside/secret", "upwards"},
	}
	for _, tt := range links {
		t.Run(fmt.Sprintf("%d %s", tt.promise, tt.what), func(t *testing.T) {
			w, dir := newWorkspace(t)
			out := outside(t, dir)
			plant(t, dir, "f", strings.ReplaceAll(tt.plant, "OUT", out))
			for op, err := range everyMethod(w, tt.name) {
				switch strings.TrimSuffix(tt.name, "/") {
				case "l", "d/l": // these act on a link itself
					if op == "Stat" || op == "Rename" || op == "Remove" || op == "RemoveAll" {
						continue
					}
					if op == "Mkdir" {
						if !errors.Is(err, fs.ErrExist) {
							t.Errorf("Mkdir: %v", err)
						}
						continue
					}
				}
				if !errors.Is(err, Symlink) || !errors.Is(err, unix.ELOOP) || !errors.Is(err, fs.ErrPermission) {
					t.Errorf("%s: %v", op, err)
				}
				if err != nil && strings.Contains(err.Error(), secret) {
					t.Errorf("%s: the error holds what is behind the link: %v", op, err)
				}
			}
			intact(t, out)
		})
		t.Run("control: os reads it", func(t *testing.T) {
			_, dir := newWorkspace(t)
			out := outside(t, dir)
			plant(t, dir, "l->"+out+"/secret")
			if data, err := os.ReadFile(filepath.Join(dir, "l")); err != nil || string(data) != secret {
				t.Fatalf("%q, %v", data, err)
			}
		})
	}
}

func TestOnlyRegularFilesAreOpened(t *testing.T) {
	w, dir := newWorkspace(t)
	plant(t, dir, "p|", "s@", "d/")
	tests := map[string]Reason{"p": FIFO, "s": Socket}
	if unix.Mknod(filepath.Join(dir, "n"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))) == nil {
		tests["n"] = Device
	}
	for name, want := range tests {
		t.Run("244 reading, 247 writing a "+string(want), func(t *testing.T) {
			// A FIFO would block for ever: the test would not come back.
			_, rerr := w.ReadFile(name)
			_, oerr := w.Open(name)
			_, cerr := w.Create(name)
			werr := w.WriteFile(name, []byte("x"))
			for _, err := range []error{rerr, oerr, cerr, werr} {
				if !errors.Is(err, want) || !errors.Is(err, unix.ENXIO) || !strings.Contains(err.Error(), "not a regular file") {
					t.Errorf("%v, want %v", err, want)
				}
			}
			if !w.Exists(name) {
				t.Error("it is gone")
			}
		})
	}
	t.Run("247 a FIFO that has a reader gets nothing", func(t *testing.T) {
		r, err := os.OpenFile(filepath.Join(dir, "p"), os.O_RDONLY|unix.O_NONBLOCK, 0)
		must(t, err)
		defer r.Close()
		must(t, errIs(w.WriteFile("p", []byte("x")), FIFO))
		_, err = w.Create("p")
		must(t, errIs(err, FIFO))
		// With no writer ever there, a non-blocking read is at its end.
		if n, err := unix.Read(int(r.Fd()), make([]byte, 1)); n != 0 || err != nil {
			t.Errorf("read %d bytes, %v", n, err)
		}
	})
	t.Run("245 reading the root or a directory", func(t *testing.T) {
		for _, name := range []string{"", ".", "d"} {
			_, err := w.ReadFile(name)
			if !errors.Is(err, Directory) || !errors.Is(err, syscall.EISDIR) {
				t.Errorf("ReadFile(%q): %v", name, err)
			}
		}
		must(t, errIs(w.WriteFile(".", nil), Directory))
		must(t, errIs(w.WriteFile("d", nil), Directory))
		_, err := w.Create("d")
		must(t, errIs(err, Directory))
	})
	t.Run("a file under a lease does not block", func(t *testing.T) {
		plant(t, dir, "leased")
		out := startHelper(t, "lease", filepath.Join(dir, "leased"))
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(line, err)
		}
		_, err := w.ReadFile("leased")
		must(t, errIs(err, unix.EAGAIN))
	})
	t.Run("a sparse file of any size does not exhaust memory", func(t *testing.T) {
		f, err := os.Create(filepath.Join(dir, "huge"))
		must(t, err)
		defer f.Close()
		must(t, f.Truncate(1<<43))
		_, err = w.ReadFile("huge")
		var limit *LimitError
		if !errors.As(err, &limit) || limit.Max != MaxReadFile {
			t.Errorf("%v", err)
		}
	})
}

func errIs(err, want error) error {
	if !errors.Is(err, want) {
		return fmt.Errorf("got error %v, want %v", err, want)
	}
	return nil
}

func TestWriting(t *testing.T) {
	old := unix.Umask(0) // the mode must not come from the umask
	defer unix.Umask(old)
	t.Run("246 new files have mode 0600, existing ones are emptied", func(t *testing.T) {
		w, dir := newWorkspace(t)
		must(t, w.WriteFile("a", []byte("long content")))
		must(t, w.WriteFile("a", []byte("short")))
		f, err := w.Create("b")
		must(t, err)
		f.Write([]byte("long content"))
		f.Close()
		f, err = w.Create("b")
		must(t, err)
		n, err := f.Write([]byte("short")) // 254
		if n != 5 || err != nil {
			t.Errorf("Write = %d, %v", n, err)
		}
		must(t, f.Sync())
		must(t, f.Close())
		for _, name := range []string{"a", "b"} {
			info, err := os.Lstat(filepath.Join(dir, name))
			must(t, err)
			data, _ := os.ReadFile(filepath.Join(dir, name))
			if info.Mode() != 0o600 || string(data) != "short" {
				t.Errorf("%s: %v %q", name, info.Mode(), data)
			}
		}
	})
	t.Run("246 an existing file keeps its permissions", func(t *testing.T) {
		w, dir := newWorkspace(t)
		plant(t, dir, "a")
		must(t, os.Chmod(filepath.Join(dir, "a"), 0o751))
		must(t, w.WriteFile("a", []byte("new")))
		info, err := w.Stat("a")
		must(t, err)
		if info.Mode() != 0o751 {
			t.Error(info.Mode())
		}
	})
	t.Run("248 a hard link is not written through", func(t *testing.T) {
		w, dir := newWorkspace(t)
		out := outside(t, dir)
		plant(t, dir, "h=../outside/secret", "h2=../outside/secret")
		_, err := w.Create("h")
		must(t, errIs(err, Hardlink))
		must(t, errIs(w.Chmod("h", 0o777), Hardlink))
		must(t, errIs(w.Chown("h", 1, 1), Hardlink))
		must(t, w.WriteFile("h", []byte("mine")))
		if data, _ := w.ReadFile("h"); string(data) != "mine" {
			t.Errorf("%q", data)
		}
		intact(t, out)
	})
	t.Run("WriteFile is atomic and leaves no temporary file", func(t *testing.T) {
		w, dir := newWorkspace(t)
		// A reader sees one of the two contents, whole.
		a, b := bytes.Repeat([]byte("a"), 100_000), bytes.Repeat([]byte("b"), 100_000)
		must(t, w.WriteFile("f", a))
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range 200 {
				data := a
				if i%2 == 0 {
					data = b
				}
				if err := w.WriteFile("f", data); err != nil {
					t.Error(err)
				}
			}
		}()
		for open := true; open; {
			select {
			case <-done:
				open = false
			default:
			}
			data, err := w.ReadFile("f")
			if err != nil || !bytes.Equal(data, a) && !bytes.Equal(data, b) {
				t.Fatalf("%d bytes, %v", len(data), err)
			}
		}
		// The rename fails when the guest has swapped in a directory.
		must(t, w.Mkdir("d"))
		err := w.withRoot(func(root int) error {
			return w.r.replace(root, "d", nil, func(fd int) error { _, err := writeFD(fd, []byte("x")); return err })
		})
		must(t, errIs(err, syscall.EISDIR))
		fill := errors.New("disk full")
		err = w.withRoot(func(root int) error {
			return w.r.replace(root, "g", nil, func(int) error { return fill })
		})
		must(t, errIs(err, fill))
		entries, err := os.ReadDir(dir)
		must(t, err)
		if len(entries) != 2 {
			t.Errorf("left over: %v", entries)
		}
	})
	t.Run("a missing directory is not made", func(t *testing.T) {
		w, _ := newWorkspace(t)
		must(t, errIs(w.WriteFile("no/f", nil), fs.ErrNotExist))
		_, err := w.Create("no/f")
		must(t, errIs(err, fs.ErrNotExist))
	})
	t.Run("253 a file opened for reading cannot be written, nor the reverse", func(t *testing.T) {
		w, dir := newWorkspace(t)
		plant(t, dir, "f")
		f, err := w.Open("f")
		must(t, err)
		defer f.Close()
		if _, err := f.Write([]byte("x")); !errors.Is(err, syscall.EBADF) {
			t.Error(err)
		}
		c, err := w.Create("f")
		must(t, err)
		defer c.Close()
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.EBADF) {
			t.Error(err)
		}
	})
	t.Run("254 text comes back as it was", func(t *testing.T) {
		w, _ := newWorkspace(t)
		const text = "grüße 世界\n"
		must(t, w.WriteFile("t", []byte(text)))
		if data, err := w.ReadFile("t"); err != nil || string(data) != text {
			t.Errorf("%q, %v", data, err)
		}
	})
}

func TestFilePositions(t *testing.T) {
	w, _ := newWorkspace(t)
	must(t, w.WriteFile("f", []byte("0123456789")))
	f, err := w.Open("f")
	must(t, err)
	defer f.Close()
	b := make([]byte, 3)
	if _, err := f.ReadAt(b, 4); err != nil || string(b) != "456" {
		t.Errorf("%q %v", b, err)
	}
	if _, err := f.Seek(-2, io.SeekEnd); err != nil {
		t.Error(err)
	}
	if rest, err := io.ReadAll(f); err != nil || string(rest) != "89" {
		t.Errorf("%q %v", rest, err)
	}
	if _, err := f.ReadDir(-1); !errors.Is(err, NotDirectory) {
		t.Error(err)
	}
	info, err := f.Stat()
	if err != nil || info.Size() != 10 || info.Name() != "f" {
		t.Error(info, err)
	}
	if s, ok := info.Sys().(*Stat); !ok || s.Nlink != 1 || s.Ino == 0 || s.ChangeTime.IsZero() {
		t.Errorf("Sys = %+v", s)
	}
}

func TestPredicates251(t *testing.T) {
	w, dir := newWorkspace(t)
	plant(t, dir, "f", "d/f", "lf->f", "ld->d", "dangling->nowhere", "p|")
	type is struct{ exists, dir, file, link bool }
	for name, want := range map[string]is{
		"":         {true, true, false, false},
		"f":        {true, false, true, false},
		"d":        {true, true, false, false},
		"d/f":      {true, false, true, false},
		"lf":       {true, false, false, true},
		"ld":       {true, false, false, true},
		"dangling": {true, false, false, true},
		"p":        {true, false, false, false},
		"ld/f":     {},
		"none":     {},
		"f/x":      {},
		"..":       {},
		"/":        {},
	} {
		got := is{w.Exists(name), w.IsDir(name), w.IsFile(name), w.IsSymlink(name)}
		if got != want {
			t.Errorf("%q: %+v, want %+v", name, got, want)
		}
	}
	info, err := w.Stat("lf")
	must(t, err)
	if info.Mode().Type() != fs.ModeSymlink {
		t.Error(info.Mode())
	}
}

func TestManage(t *testing.T) {
	t.Run("Mkdir", func(t *testing.T) {
		w, dir := newWorkspace(t)
		must(t, w.Mkdir("d"))
		must(t, errIs(w.Mkdir("d"), fs.ErrExist))
		must(t, errIs(w.Mkdir("a/b"), fs.ErrNotExist))
		must(t, w.MkdirAll("a/b/c"))
		must(t, w.MkdirAll("a/b/c"))
		must(t, w.MkdirAll("."))
		plant(t, dir, "f", "l->d")
		must(t, errIs(w.MkdirAll("f/x"), NotDirectory))
		must(t, errIs(w.MkdirAll("l/x"), Symlink))
		for _, name := range []string{"d", "a", "a/b", "a/b/c"} {
			if info, err := w.Stat(name); err != nil || info.Mode() != fs.ModeDir|0o700 {
				t.Errorf("%s: %v %v", name, info, err)
			}
		}
	})
	t.Run("Remove acts on a link itself", func(t *testing.T) {
		w, dir := newWorkspace(t)
		out := outside(t, dir)
		plant(t, dir, "l->"+out, "f", "d/", "full/f", "p|")
		for _, name := range []string{"l", "f", "d", "p"} {
			must(t, w.Remove(name))
			if w.Exists(name) {
				t.Errorf("%s is still there", name)
			}
		}
		must(t, errIs(w.Remove("full"), syscall.ENOTEMPTY))
		must(t, errIs(w.Remove("none"), fs.ErrNotExist))
		must(t, errIs(w.Remove("."), Directory))
		intact(t, out)
	})
	t.Run("Rename", func(t *testing.T) {
		w, dir := newWorkspace(t)
		out := outside(t, dir)
		plant(t, dir, "f", "g", "l->"+out, "d/")
		must(t, w.Rename("f", "g"))
		if data, _ := w.ReadFile("g"); string(data) != "f" || w.Exists("f") {
			t.Errorf("%q", data)
		}
		must(t, errIs(w.Rename("g", "l/g"), Symlink))
		must(t, errIs(w.Rename("l/secret", "g"), Symlink))
		must(t, errIs(w.Rename("g", "../g"), Escape))
		must(t, w.Rename("l", "d/l"))
		if !w.IsSymlink("d/l") {
			t.Error("the link did not move")
		}
		intact(t, out)
	})
	t.Run("Chmod and Chown", func(t *testing.T) {
		w, dir := newWorkspace(t)
		plant(t, dir, "f", "l->f", "p|", "d/")
		must(t, w.Chmod("f", 0o640))
		must(t, w.Chmod("d", 0o700))
		if info, _ := w.Stat("f"); info.Mode() != 0o640 {
			t.Error(info.Mode())
		}
		must(t, errIs(w.Chmod("l", 0o777), Symlink))
		must(t, errIs(w.Chmod("p", 0o777), FIFO))
		must(t, errIs(w.Chmod("f", 0o777|fs.ModeSetuid), syscall.EINVAL))
		must(t, errIs(w.Chown("l", 1, 1), Symlink))
		if os.Geteuid() == 0 {
			must(t, w.Chown("f", 1234, 1235))
			info, _ := w.Stat("f")
			if s := info.Sys().(*Stat); s.UID != 1234 || s.GID != 1235 {
				t.Errorf("%+v", s)
			}
			// 173: a file the host overwrites stays the guest's.
			must(t, w.WriteFile("f", []byte("x")))
			info, _ = w.Stat("f")
			if s := info.Sys().(*Stat); s.UID != 1234 || s.GID != 1235 {
				t.Errorf("after WriteFile: %+v", s)
			}
		}
	})
	t.Run("RemoveAll", func(t *testing.T) {
		w, dir := newWorkspace(t)
		out := outside(t, dir)
		plant(t, dir, "t/a/b/c", "t/a/l->"+out, "t/d->../../outside", "t/p|", "t/e/", "keep", "t/h=../outside/secret")
		must(t, w.RemoveAll("t"))
		must(t, w.RemoveAll("t"))
		must(t, w.RemoveAll("none/x"))
		if w.Exists("t") || !w.Exists("keep") {
			t.Error("removed the wrong things")
		}
		plant(t, dir, "l->"+out, "x/y")
		must(t, errIs(w.RemoveAll("l/secret"), Symlink))
		must(t, w.RemoveAll("."))
		if entries, _ := os.ReadDir(dir); len(entries) != 0 {
			t.Errorf("left: %v", entries)
		}
		intact(t, out)
	})
}

func TestRemoveAllOfDirectoriesWithoutPermissions(t *testing.T) {
	if !asNobody(t) {
		return
	}
	w, dir := newWorkspace(t)
	plant(t, dir, "t/none/f", "t/readonly/d/f", "t/noexec/f")
	must(t, os.Chmod(filepath.Join(dir, "t/readonly/d"), 0o555))
	must(t, os.Chmod(filepath.Join(dir, "t/readonly"), 0o555))
	must(t, os.Chmod(filepath.Join(dir, "t/noexec"), 0o600))
	must(t, os.Chmod(filepath.Join(dir, "t/none"), 0))
	if os.RemoveAll(filepath.Join(dir, "t")) == nil {
		t.Fatal("control: os.RemoveAll has managed it, so this tests nothing")
	}
	must(t, w.RemoveAll("t"))
	if w.Exists("t") {
		t.Error("still there")
	}
}

func TestMountsAreNotCrossed(t *testing.T) {
	w, dir := newWorkspace(t)
	out := outside(t, dir)
	plant(t, dir, "m/", "f", "after")
	// In a mount namespace of its own, so the machine does not see it: run from a locked thread that is thrown away.
	errs := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		errs <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
				return fmt.Errorf("unshare: %w", err)
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return err
			}
			if err := unix.Mount(out, filepath.Join(dir, "m"), "", unix.MS_BIND, ""); err != nil {
				return err
			}
			if err := unix.Mount(filepath.Join(out, "secret"), filepath.Join(dir, "f"), "", unix.MS_BIND, ""); err != nil {
				return err
			}
			w, err := Open(dir) // the mounts are those of this namespace
			if err != nil {
				return err
			}
			defer w.Close()
			if data, err := os.ReadFile(filepath.Join(dir, "m/secret")); string(data) != secret {
				return fmt.Errorf("control: %q %w", data, err)
			}
			for _, name := range []string{"f", "m", "m/secret"} {
				if _, err := w.Open(name); !errors.Is(err, Mount) {
					return fmt.Errorf("Open(%s): %v", name, err)
				}
			}
			if err := w.WriteFile("m/new", nil); !errors.Is(err, Mount) {
				return fmt.Errorf("WriteFile: %v", err)
			}
			var seen []string
			for e, err := range w.Walk(".") {
				seen = append(seen, fmt.Sprint(e.Path(), " ", errors.Is(err, Mount)))
			}
			if got := strings.Join(seen, ","); got != "after false,f false,m false,m true" {
				return fmt.Errorf("walk: %s", got)
			}
			var buf bytes.Buffer
			report, err := w.PackTar(t.Context(), &buf, PackOptions{})
			if err != nil || len(report.Skipped) != 2 || report.Skipped[0].Reason != Mount || report.Skipped[1].Reason != Mount {
				return fmt.Errorf("pack: %+v %w", report, err)
			}
			if bytes.Contains(buf.Bytes(), []byte(secret)) {
				return errors.New("the secret was packed")
			}
			return nil
		}()
	}()
	if err := <-errs; err != nil {
		if errors.Is(err, unix.EPERM) {
			needed(t, err.Error())
		}
		t.Error(err)
	}
	_ = w
	intact(t, out)
}

// The child must not inherit what the host has open.
func TestDescriptorsAreCloseOnExec(t *testing.T) {
	w, dir := newWorkspace(t)
	plant(t, dir, "f", "d/f")
	f, err := w.Open("f")
	must(t, err)
	defer f.Close()
	for range w.Walk(".") {
		out, err := exec.Command("ls", "-l", "/proc/self/fd").Output()
		must(t, err)
		if bytes.Contains(out, []byte(dir)) {
			t.Fatalf("inherited:\n%s", out)
		}
	}
}
