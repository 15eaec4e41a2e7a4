//go:build linux

package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// swapForever is a hostile guest: it turns every name of a small tree into something
// else, as fast as it can, until its standard input ends. Its own root is the
// workspace, so that only the host's view of its links leads outside.
func swapForever(dir string) int {
	if unix.Chroot(dir) != nil || os.Chdir("/") != nil {
		return 3
	}
	unix.Umask(0)
	var stop atomic.Bool
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop.Store(true)
	}()
	rng := rand.New(rand.NewPCG(1, 2))
	pick := func() string { return stressNames[rng.IntN(len(stressNames))] }
	targets := []string{"../outside/secret", "../outside", "..", "/proc/self/environ", ".", "a", "nowhere"}
	for told := false; !stop.Load(); {
		for range 1000 {
			name := pick()
			switch rng.IntN(14) {
			case 0, 1:
				if fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_NONBLOCK, 0o666); err == nil {
					unix.Write(fd, []byte("guest"))
					unix.Close(fd)
				}
			case 2:
				os.Mkdir(name, 0o777)
			case 3, 4:
				os.Symlink(targets[rng.IntN(len(targets))], name)
			case 5:
				unix.Mkfifo(name, 0o666)
			case 6:
				os.Link(pick(), name)
			case 7, 8, 9:
				os.Remove(name) // not RemoveAll, which would open a FIFO as the parent and wait
			case 10, 11:
				unix.Renameat2(unix.AT_FDCWD, name, unix.AT_FDCWD, pick(), unix.RENAME_EXCHANGE)
			case 12:
				os.Rename(name, pick())
			case 13:
				unix.Chmod(name, 0o4755)
				unix.Truncate(name, int64(rng.IntN(100_000)))
			}
		}
		if !told {
			os.Stdout.WriteString("swapping\n")
			told = true
		}
	}
	return 0
}

var stressNames = []string{"a", "b", "c", "a/a", "a/b", "b/a", "b/b", "a/a/a", "a/b/a", "b/a/b"}

// TestStress lets a guest swap files, directories, links and FIFOs while the host
// reads, writes, walks, packs, restores and removes. Nothing outside may be read or
// written, nothing may panic or hang. POSTERN_STRESS=2m makes it longer than the
// default number of rounds.
func TestStress(t *testing.T) {
	rounds, until := 300, time.Time{}
	if s := os.Getenv("POSTERN_STRESS"); s != "" {
		d, err := time.ParseDuration(s)
		must(t, err)
		until = time.Now().Add(d)
	}
	w, dir := newWorkspace(t)
	out := outside(t, dir)
	must(t, os.Chmod(filepath.Join(out, "secret"), 0o444))
	before, err := os.Stat(filepath.Join(out, "secret"))
	must(t, err)
	ready := startHelper(t, "swap", dir)
	must(t, func() error { _, err := ready.Read(make([]byte, 16)); return err }())

	var archive bytes.Buffer
	{
		other, otherDir := newWorkspace(t)
		plant(t, otherDir, "a/a", "a/b/a", "b/a/", "b/b", "c")
		if _, err := other.PackTar(t.Context(), &archive, PackOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const maxTree = 500
	did := map[string]int{}
	saw := func(op string, err error) {
		why := "ok"
		if err != nil {
			why = "error"
			if r := Reason(""); errors.As(err, &r) {
				why = string(r)
			} else if errors.Is(err, fs.ErrNotExist) {
				why = "gone"
			}
			for _, s := range []string{secret, helperEnv + "="} {
				if strings.Contains(err.Error(), s) {
					t.Fatalf("%s: %v", op, err)
				}
			}
		}
		did[op+" "+why]++
	}
	clean := func(op string, data []byte) {
		for _, s := range []string{secret, helperEnv + "="} {
			if bytes.Contains(data, []byte(s)) {
				t.Fatalf("%s has read outside: %.200q", op, data)
			}
		}
	}
	fsys := w.FS()
	for i := 0; i < rounds || time.Now().Before(until); i++ {
		name := stressNames[i%len(stressNames)]
		data, err := w.ReadFile(name)
		clean("ReadFile", data)
		saw("ReadFile", err)
		entries, err := w.ReadDir(name)
		for _, e := range entries {
			if e.Name() == "secret" {
				t.Fatal("ReadDir has listed something outside")
			}
		}
		saw("ReadDir", err)
		saw("WriteFile", w.WriteFile(name, []byte("host")))
		f, err := w.Create(name)
		if err == nil {
			f.Write([]byte("host"))
			f.Close()
		}
		saw("Create", err)
		saw("MkdirAll", w.MkdirAll(name))
		saw("Chmod", w.Chmod(name, 0o777))
		saw("Rename", w.Rename(name, stressNames[(i+3)%len(stressNames)]))
		n := 0
		for e, err := range w.Walk(".") {
			saw("Walk", err)
			if n++; e == nil || n > maxTree {
				break
			}
			if strings.Contains(e.Path(), "secret") {
				t.Fatal("Walk has gone outside")
			}
			if f, err := e.Open(); err == nil {
				if !e.IsDir() {
					data, _ := io.ReadAll(f)
					clean("Entry.Open", data)
				}
				f.Close()
			}
		}
		if n > maxTree {
			// Directories moved into each other have added up; start small again.
			saw("empty", w.RemoveAll("."))
			continue
		}
		if i%4 == 0 {
			fs.WalkDir(fsys, ".", func(path string, d fs.DirEntry, err error) error {
				if data, err := fs.ReadFile(fsys, path); err == nil {
					clean("FS", data)
				}
				return nil
			})
		}
		var packed bytes.Buffer
		_, err = w.PackTar(t.Context(), &packed, PackOptions{})
		saw("PackTar", err)
		must(t, err)
		clean("PackTar", packed.Bytes())
		_, err = w.RestoreTar(t.Context(), bytes.NewReader(archive.Bytes()), RestoreOptions{PreserveModes: true, PreserveTimes: true})
		saw("RestoreTar", err)
		_, err = w.Sanitize(t.Context())
		saw("Sanitize", err)
		must(t, err)
		if i%8 == 0 {
			saw("RemoveAll", w.RemoveAll(stressNames[i%3]))
		}
		if i%50 == 0 {
			intact(t, out)
		}
	}
	intact(t, out)
	after, err := os.Stat(filepath.Join(out, "secret"))
	must(t, err)
	if !after.ModTime().Equal(before.ModTime()) || after.Size() != before.Size() {
		t.Error("the file outside was written to")
	}
	t.Log(fmt.Sprint(did))
	// The race must have been real, or this proves nothing.
	for _, want := range []string{"ReadFile ok", "ReadFile symlink", "ReadFile fifo", "WriteFile symlink"} {
		if did[want] == 0 {
			t.Errorf("never happened: %s", want)
		}
	}
}
