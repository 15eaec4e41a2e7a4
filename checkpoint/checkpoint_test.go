//go:build linux

package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/populationgenomics/postern-go/workspace"
	"golang.org/x/sys/unix"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func same(t testing.TB, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

func newWorkspace(t testing.TB) (*workspace.Workspace, string) {
	t.Helper()
	dir := t.TempDir()
	w, err := workspace.Open(dir)
	must(t, err)
	t.Cleanup(func() { w.Close() })
	return w, dir
}

func newDir(t testing.TB) *Dir {
	t.Helper()
	d, err := OpenDir(filepath.Join(t.TempDir(), "store"))
	must(t, err)
	t.Cleanup(func() { d.Close() })
	return d
}

// fill makes files that have not changed lately, as far as their change time tells. A name
// with a slash at its end is a directory; a file holds its name.
func fill(t testing.TB, dir string, names ...string) {
	t.Helper()
	for _, n := range names {
		at := filepath.Join(dir, n)
		if strings.HasSuffix(n, "/") {
			must(t, os.MkdirAll(at, 0o750))
			continue
		}
		must(t, os.MkdirAll(filepath.Dir(at), 0o750))
		must(t, os.WriteFile(at, []byte(n), 0o640))
	}
}

// settle waits until no change in the workspace is so recent that a later one
// could have the same time.
func settle(t testing.TB, dir string) {
	t.Helper()
	probe := filepath.Join(t.TempDir(), "probe")
	var newest time.Time
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		if c := time.Unix(st.Ctim.Unix()); c.After(newest) {
			newest = c
		}
		return err
	}))
	for time.Since(newest) <= racy {
		must(t, os.WriteFile(probe, nil, 0o600)) // the event waited for is the clock's
	}
}

func tree(t testing.TB, dir string) []string {
	t.Helper()
	var out []string
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%s %v", rel, info.Mode())
		if d.Type() == 0 {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d %.50q", info.ModTime().UnixNano(), data)
		}
		out = append(out, line)
		return nil
	}))
	return out
}

func save(t testing.TB, w *workspace.Workspace, s Store, key string, opts SaveOptions) Report {
	t.Helper()
	r, err := Save(t.Context(), w, s, key, opts)
	must(t, err)
	return r
}

func load(t testing.TB, s Store, key string) (string, workspace.Report) {
	t.Helper()
	w, dir := newWorkspace(t)
	r, err := Load(t.Context(), w, s, key, LoadOptions{})
	must(t, err)
	return dir, r
}

func TestSaveAndLoad(t *testing.T) {
	w, dir := newWorkspace(t)
	fill(t, dir, "a", "d/b", "d/e/", "grüße/\xff", "empty", "a-b/x", "a.b/y")
	must(t, os.Truncate(filepath.Join(dir, "empty"), 0))
	big := make([]byte, 3*chunkSize+12345)
	rand.NewChaCha8([32]byte{}).Read(big)
	must(t, os.WriteFile(filepath.Join(dir, "big"), big, 0o600))
	must(t, unix.Chmod(filepath.Join(dir, "a"), 0o4755))
	must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "link")))
	must(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644))
	s := newDir(t)
	report := save(t, w, s, "k", SaveOptions{})
	if report.Files != 7 || report.Dirs != 5 || report.OK() || len(report.Skipped) != 2 || report.Bytes != report.Stored {
		t.Errorf("%+v", report)
	}
	if c := report.Changed; len(c) != 1 || c[0].Reason != workspace.Setuid {
		t.Errorf("%v", c)
	}

	to, restored := load(t, s, "k")
	must(t, os.Remove(filepath.Join(dir, "link")))
	must(t, os.Remove(filepath.Join(dir, "fifo")))
	must(t, unix.Chmod(filepath.Join(dir, "a"), 0o755))
	same(t, "tree", tree(t, to), tree(t, dir)...)
	if got, err := os.ReadFile(filepath.Join(to, "big")); err != nil || !bytes.Equal(got, big) {
		t.Error("the big file differs")
	}
	if restored.Files != report.Files || restored.Bytes != report.Bytes {
		t.Errorf("%+v", restored)
	}
}

func TestIncremental(t *testing.T) {
	w, dir := newWorkspace(t)
	for i := range 300 {
		fill(t, dir, fmt.Sprintf("d%02d/f%03d", i%7, i))
	}
	s := newDir(t)
	settle(t, dir)
	first := save(t, w, s, "k", SaveOptions{})
	if first.Unchanged != 0 || first.Files != 300 {
		t.Errorf("%+v", first)
	}
	second := save(t, w, s, "k", SaveOptions{})
	if second.Unchanged != 300 || second.Stored != 0 {
		t.Errorf("%+v", second)
	}

	at := func(n string) string { return filepath.Join(dir, n) }
	old, err := os.Stat(at("d00/f000"))
	must(t, err)
	// A guest that forges the modification time of a change of equal length.
	must(t, os.WriteFile(at("d00/f000"), []byte("D00/F000"), 0o640))
	must(t, os.Chtimes(at("d00/f000"), old.ModTime(), old.ModTime()))
	must(t, os.Remove(at("d01/f001")))
	must(t, os.Rename(at("d02/f002"), at("d02/renamed")))
	// One put in place of another, with its times.
	same1, err := os.Stat(at("d03/f003"))
	must(t, err)
	must(t, os.WriteFile(at("new"), []byte("x03/x003"), 0o640))
	must(t, os.Chtimes(at("new"), same1.ModTime(), same1.ModTime()))
	must(t, os.Rename(at("new"), at("d03/f003")))
	must(t, os.Chmod(at("d04/f004"), 0o600))
	fill(t, dir, "added/file")

	third := save(t, w, s, "k", SaveOptions{})
	if want := int64(300 - 5); third.Unchanged != want || third.Files != 300 {
		t.Errorf("%+v, want %d unchanged", third, want)
	}
	if want := int64(len("D00/F000") + len("x03/x003") + len("added/file")); third.Stored != want {
		t.Errorf("stored %d bytes, want %d: what is only renamed is stored already", third.Stored, want)
	}
	to, _ := load(t, s, "k")
	same(t, "tree", tree(t, to), tree(t, dir)...)

	t.Run("another key with a base", func(t *testing.T) {
		settle(t, dir)
		save(t, w, s, "k", SaveOptions{})
		r := save(t, w, s, "other", SaveOptions{Base: "k"})
		if r.Unchanged != 300 || r.Stored != 0 {
			t.Errorf("%+v", r)
		}
		if r = save(t, w, s, "other", SaveOptions{Full: true}); r.Unchanged != 0 {
			t.Errorf("%+v", r)
		}
		_, err := Save(t.Context(), w, s, "third", SaveOptions{Base: "none"})
		if !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
}

// A file that has just changed could change again within a tick of the clock, so the
// times recorded for it must not be trusted.
func TestAJustChangedFileIsReadAgain(t *testing.T) {
	w, dir := newWorkspace(t)
	fill(t, dir, "f")
	s := newDir(t)
	save(t, w, s, "k", SaveOptions{})
	m, err := readManifest(t.Context(), s, "k")
	must(t, err)
	if m.files[0].seen != (identity{}) {
		t.Errorf("%+v", m.files[0])
	}
	if r := save(t, w, s, "k", SaveOptions{}); r.Unchanged != 0 {
		t.Errorf("%+v", r)
	}
}

func TestUnchangedFilesAreStoredOnce(t *testing.T) {
	w, dir := newWorkspace(t)
	content := make([]byte, 40_000)
	for i := range 1000 {
		for j := range content {
			content[j] = byte(i*j>>5 + i)
		}
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%04d", i)), content, 0o600))
	}
	s := newDir(t)
	save(t, w, s, "one", SaveOptions{})
	before := packs(t, s)
	// The same contents elsewhere, with one file more at the front: no base to compare with.
	w2, dir2 := newWorkspace(t)
	must(t, os.CopyFS(dir2, os.DirFS(dir)))
	fill(t, dir2, "0000-first")
	save(t, w2, s, "two", SaveOptions{})
	after := packs(t, s)
	if len(before) < 3 {
		t.Fatalf("only %d packs, so this tests nothing", len(before))
	}
	if n := len(after) - len(before); n > 2 {
		t.Errorf("%d packs, then %d more", len(before), n)
	}
	// Copies within one workspace.
	must(t, os.CopyFS(filepath.Join(dir, "copy"), os.DirFS(dir2)))
	if r := save(t, w, s, "one", SaveOptions{}); r.Stored != int64(len("0000-first")) {
		t.Errorf("%+v", r)
	}
}

func packs(t testing.TB, s Store) []string {
	t.Helper()
	var names []string
	for o, err := range s.List(t.Context(), packPrefix) {
		must(t, err)
		names = append(names, o.Name)
	}
	return names
}

func TestGlobs(t *testing.T) {
	for _, tt := range []struct {
		globs string
		path  string
		want  string // selected, below, or nothing
	}{
		{"out", "out", "selected"}, {"out", "out/a/b", "selected"}, {"out", "out2", ""}, {"out", "x/out", ""},
		{"out/", "out/a", "selected"},
		{"out/**", "out", "selected"}, {"out/**", "out/a/b", "selected"}, {"out/**", "x", ""},
		{"**", "anything/at/all", "selected"},
		{"*.db", "a.db", "selected"}, {"*.db", "d/a.db", ""}, {"*.db", "a.dbx", ""},
		{"**/*.db", "a.db", "selected"}, {"**/*.db", "d/e/a.db", "selected"}, {"**/*.db", "d/e", "below"},
		{"a/**/z", "a/z", "selected"}, {"a/**/z", "a/b/c/z", "selected"}, {"a/**/z", "a/b/c", "below"}, {"a/**/z", "b", ""},
		{"a/*/c", "a/b", "below"}, {"a/*/c", "a/b/c", "selected"}, {"a/*/c", "a/b/d", ""},
		{"[a-c]?", "b1", "selected"}, {"[a-c]?", "d1", ""},
		{"x y", "b", ""}, {"b x", "x", "selected"},
		{"**/a/**/b", "a/c/b", "selected"}, {"**/a/**/b", "c/b", "below"},
		{"é*", "étude", "selected"},
	} {
		gs, err := compile(strings.Fields(tt.globs))
		must(t, err)
		selected, below := gs.match(tt.path)
		got := ""
		if selected {
			got = "selected"
		} else if below {
			got = "below"
		}
		if got != tt.want {
			t.Errorf("%s, %s: %q, want %q", tt.globs, tt.path, got, tt.want)
		}
	}
	for _, bad := range []string{"", "/abs", "a//b", "../x", "a/..", "./a", "[", "a/[b"} {
		if err := CheckGlobs([]string{bad}); !errors.Is(err, path.ErrBadPattern) || !strings.Contains(err.Error(), "glob") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	t.Run("many stars do not explode", func(t *testing.T) {
		gs, err := compile([]string{strings.Repeat("**/a*/", 30) + "z"})
		must(t, err)
		if selected, _ := gs.match(strings.Repeat("aaa/", 500) + "y"); selected {
			t.Error("matched")
		}
	})
	t.Run("only what is durable is saved, with the directories above", func(t *testing.T) {
		w, dir := newWorkspace(t)
		fill(t, dir, "src/a.go", "src/deep/b.go", "src/deep/b.o", "tmp/x", "tmp/y/z", "state.db", "out/a", "out/e/", "src/empty/")
		must(t, os.Symlink("/etc", filepath.Join(dir, "tmp/link")))
		must(t, os.Symlink("/etc", filepath.Join(dir, "out/link")))
		s := newDir(t)
		r := save(t, w, s, "k", SaveOptions{Globs: []string{"src/**/*.go", "*.db", "out"}})
		to, _ := load(t, s, "k")
		var got []string
		for _, line := range tree(t, to) {
			got = append(got, strings.Fields(line)[0])
		}
		same(t, "restored", got, "out", "out/a", "out/e", "src", "src/a.go", "src/deep", "src/deep/b.go", "state.db")
		if len(r.Skipped) != 1 || r.Skipped[0].Path != "out/link" {
			t.Errorf("%v", r.Skipped)
		}
		info, err := os.Stat(filepath.Join(to, "src/deep"))
		if err != nil || info.Mode().Perm() != 0o750 {
			t.Errorf("%v %v", info, err)
		}
	})
}

// memory is a Store that can be told to fail.
type memory struct {
	objects map[string][]byte
	put     func(name string) error
}

func (m *memory) Put(_ context.Context, name string, r io.Reader) error {
	data, err := io.ReadAll(r)
	if err == nil && m.put != nil {
		err = m.put(name)
	}
	if err == nil {
		m.objects[name] = data
	}
	return err
}

func (m *memory) Get(_ context.Context, name string) (io.ReadCloser, error) {
	data, ok := m.objects[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

func (m *memory) Delete(_ context.Context, name string) error {
	delete(m.objects, name)
	return nil
}

func (m *memory) List(_ context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		for _, name := range slices.Sorted(maps.Keys(m.objects)) {
			if strings.HasPrefix(name, prefix) && !yield(Object{Name: name, Size: int64(len(m.objects[name])), ModTime: time.Unix(1, 0)}, nil) {
				return
			}
		}
	}
}

func TestAFailedSaveLeavesTheOldCheckpoint(t *testing.T) {
	w, dir := newWorkspace(t)
	fill(t, dir, "a", "b")
	s := &memory{objects: map[string][]byte{}}
	save(t, w, s, "k", SaveOptions{})
	want := tree(t, dir)
	fill(t, dir, "c")
	full := errors.New("disk full")
	for _, at := range []string{packPrefix, manifestPrefix} {
		s.put = func(name string) error {
			if strings.HasPrefix(name, at) {
				return full
			}
			return nil
		}
		_, err := Save(t.Context(), w, s, "k", SaveOptions{})
		if !errors.Is(err, full) {
			t.Errorf("%s: %v", at, err)
		}
		to, _ := load(t, s, "k")
		same(t, "tree", tree(t, to), want...)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Save(ctx, w, s, "k", SaveOptions{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := Load(ctx, w, s, "k", LoadOptions{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestDamageIsNoticed(t *testing.T) {
	w, dir := newWorkspace(t)
	fill(t, dir, "a", "b/c")
	s := &memory{objects: map[string][]byte{}}
	save(t, w, s, "k", SaveOptions{})
	whole := maps.Clone(s.objects)
	if len(whole) != 2 {
		t.Fatalf("%d objects", len(whole))
	}
	for name, data := range whole {
		for i := range data {
			s.objects = maps.Clone(whole)
			s.objects[name] = bytes.Clone(data)
			s.objects[name][i] ^= 0x20
			to, _ := newWorkspace(t)
			_, err := Load(t.Context(), to, s, "k", LoadOptions{})
			var ce *CorruptError
			if !errors.As(err, &ce) || ce.Name != name {
				t.Fatalf("%s with byte %d changed: %v", name, i, err)
			}
		}
		for _, n := range []int{0, 1, len(data) / 2, len(data) - 1} {
			s.objects = maps.Clone(whole)
			s.objects[name] = data[:n]
			to, _ := newWorkspace(t)
			if _, err := Load(t.Context(), to, s, "k", LoadOptions{}); err == nil {
				t.Errorf("%s cut to %d bytes", name, n)
			}
		}
	}
	s.objects = whole
	delete(s.objects, packs(t, s)[0])
	if _, err := Load(t.Context(), w, s, "k", LoadOptions{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := Load(t.Context(), w, s, "none", LoadOptions{}); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), `"none"`) {
		t.Error(err)
	}
}

// A manifest that a stranger wrote, or the contents of a hostile guest, meet the same walls as an archive.
func TestLoadTrustsNoName(t *testing.T) {
	s := &memory{objects: map[string][]byte{}}
	m := manifest{files: []entry{{path: "../up"}, {path: "/abs"}, {path: "ok"}, {path: "l/x"}}}
	name, err := keyName("k")
	must(t, err)
	s.objects[name] = m.encode()
	w, dir := newWorkspace(t)
	out := t.TempDir()
	must(t, os.Symlink(out, filepath.Join(dir, "l")))
	r, err := Load(t.Context(), w, s, "k", LoadOptions{})
	if !errors.Is(err, workspace.NotDirectory) || len(r.Skipped) != 2 || !w.IsFile("ok") {
		t.Errorf("%v %+v", err, r)
	}
	if entries, _ := os.ReadDir(out); len(entries) != 0 {
		t.Error("written outside")
	}
}

func TestLimitsAndOnUnsafe(t *testing.T) {
	w, dir := newWorkspace(t)
	fill(t, dir, "a", "bb", "d/c")
	s := newDir(t)
	for _, l := range []workspace.Limits{{MaxEntries: 3}, {MaxBytes: 5}, {MaxDepth: 1}, {MaxPath: 2}} {
		_, err := Save(t.Context(), w, s, "k", SaveOptions{Limits: l})
		var le *workspace.LimitError
		if !errors.As(err, &le) {
			t.Errorf("%+v: %v", l, err)
		}
	}
	save(t, w, s, "k", SaveOptions{Limits: workspace.Limits{MaxEntries: 4, MaxBytes: 6, MaxDepth: 2, MaxPath: 3}})
	to, _ := newWorkspace(t)
	_, err := Load(t.Context(), to, s, "k", LoadOptions{Limits: workspace.Limits{MaxEntries: 2}})
	var le *workspace.LimitError
	if !errors.As(err, &le) || le.Limit != "max_entries" {
		t.Error(err)
	}
	must(t, os.Symlink("a", filepath.Join(dir, "l")))
	if _, err := Save(t.Context(), w, s, "k", SaveOptions{OnUnsafe: workspace.Fail}); !errors.Is(err, workspace.Symlink) {
		t.Error(err)
	}
}

func TestKeysDeleteAndPrune(t *testing.T) {
	w, dir := newWorkspace(t)
	s := &memory{objects: map[string][]byte{}}
	keys := []string{"plain", "with/slash", "..", ".", ".hidden", "spaced out", "grüße", "100%", "\x00\xff"}
	for _, k := range keys {
		must(t, os.WriteFile(filepath.Join(dir, "f"), []byte(k), 0o600))
		save(t, w, s, k, SaveOptions{Globs: []string{"f"}})
	}
	for name := range s.objects {
		for i := range len(name) {
			if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.%/", rune(name[i])) {
				t.Errorf("object name %q", name)
			}
		}
	}
	got, err := Keys(t.Context(), s)
	must(t, err)
	slices.Sort(got)
	same(t, "keys", got, slices.Sorted(slices.Values(keys))...)
	for _, k := range keys {
		to, _ := load(t, s, k)
		if data, _ := os.ReadFile(filepath.Join(to, "f")); string(data) != k {
			t.Errorf("%q holds %q", k, data)
		}
	}
	for _, bad := range []string{"", strings.Repeat("k", 201), strings.Repeat("/", 100)} {
		if _, err := Save(t.Context(), w, s, bad, SaveOptions{}); err == nil {
			t.Errorf("key %q", bad)
		}
	}

	prune := func(age time.Duration, want int) {
		t.Helper()
		if n, err := Prune(t.Context(), s, age); err != nil || n != want {
			t.Errorf("pruned %d, %v, want %d", n, err, want)
		}
	}
	prune(0, 0)
	must(t, Delete(t.Context(), s, "plain"))
	must(t, Delete(t.Context(), s, "plain"))
	prune(time.Since(time.Unix(0, 0))*2, 0) // too young
	prune(0, 1)
	load(t, s, "..")
	name, _ := keyName("..")
	must(t, Delete(t.Context(), s, "."))
	s.objects[name] = []byte("damaged")
	if n, err := Prune(t.Context(), s, 0); err == nil || n != 0 {
		t.Errorf("pruned %d with a manifest unread, %v", n, err)
	}
}

func TestAPackThatIsMostlyGarbageIsStoredAnew(t *testing.T) {
	w, dir := newWorkspace(t)
	for i := range 100 {
		fill(t, dir, fmt.Sprintf("f%02d", i))
	}
	s := newDir(t)
	settle(t, dir)
	save(t, w, s, "k", SaveOptions{})
	for i := range 70 {
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%02d", i)), fmt.Appendf(nil, "new %d", i), 0o600))
	}
	settle(t, dir)
	save(t, w, s, "k", SaveOptions{}) // refers to 30 % of the first pack
	r := save(t, w, s, "k", SaveOptions{})
	if r.Unchanged != 70 {
		t.Errorf("%+v", r)
	}
	n, err := Prune(t.Context(), s, 0)
	if err != nil || n != 1 || len(packs(t, s)) != 2 {
		t.Errorf("pruned %d, %v, left %d", n, err, len(packs(t, s)))
	}
	to, _ := load(t, s, "k")
	same(t, "tree", tree(t, to), tree(t, dir)...)
}

// The process dies, again and again, while it saves.
func TestAKilledSaveLeavesAWholeCheckpoint(t *testing.T) {
	if dir := os.Getenv("CHECKPOINT_TEST_DIR"); dir != "" {
		saveForever(dir)
	}
	base := t.TempDir()
	s, err := OpenDir(filepath.Join(base, "store"))
	must(t, err)
	defer s.Close()
	w, dir := newWorkspace(t)
	fill(t, dir, "gen", "x/y")
	save(t, w, s, "k", SaveOptions{})
	for i := range 20 {
		cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "CHECKPOINT_TEST_DIR="+base)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		// It tells of each save; kill it somewhere in the next one.
		buf := make([]byte, 1)
		for range i%3 + 1 {
			if _, err := io.ReadFull(out, buf); err != nil {
				t.Fatal(err)
			}
		}
		for range i * 200 {
			os.Getppid() // a different moment each time
		}
		must(t, cmd.Process.Kill())
		cmd.Wait()
		to, _ := load(t, s, "k")
		gen, err := os.ReadFile(filepath.Join(to, "gen"))
		must(t, err)
		body, err := os.ReadFile(filepath.Join(to, "x/y"))
		must(t, err)
		if string(gen) != "gen" && string(body) != strings.Repeat(string(gen), 10_000) {
			t.Fatalf("generation %q with a body of %d bytes: not from one save", gen, len(body))
		}
	}
	must(t, s.Clean(t.Context(), 0))
	entries, err := os.ReadDir(filepath.Join(base, "store"))
	must(t, err)
	if len(entries) != 2 {
		t.Errorf("left: %v", entries)
	}
}

func saveForever(base string) {
	dir, err := os.MkdirTemp(base, "ws-")
	check(err)
	check(os.Mkdir(filepath.Join(dir, "x"), 0o700))
	s, err := OpenDir(filepath.Join(base, "store"))
	check(err)
	w, err := workspace.Open(dir)
	check(err)
	for i := 0; ; i++ {
		gen := fmt.Sprintf("generation %d of %s ", i, dir)
		check(os.WriteFile(filepath.Join(dir, "gen"), []byte(gen), 0o600))
		check(os.WriteFile(filepath.Join(dir, "x/y"), []byte(strings.Repeat(gen, 10_000)), 0o600))
		_, err := Save(context.Background(), w, s, "k", SaveOptions{})
		check(err)
		os.Stdout.WriteString(".")
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func TestFilesThatChangeWhileSaved(t *testing.T) {
	w, dir := newWorkspace(t)
	big := bytes.Repeat([]byte("x"), 2*chunkSize)
	must(t, os.WriteFile(filepath.Join(dir, "a"), big, 0o600))
	for i := range maxPack/chunkSize + 1 { // different contents, so that packs are stored on the way
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint("b", i)), bytes.Repeat([]byte{byte(i)}, chunkSize), 0o600))
	}
	fill(t, dir, "gone", "swapped", "z")
	s := &memory{objects: map[string][]byte{}}
	s.put = func(name string) error {
		// The first pack is full: later files change before they are reached.
		os.Remove(filepath.Join(dir, "gone"))
		os.Remove(filepath.Join(dir, "swapped"))
		os.Symlink("/etc/passwd", filepath.Join(dir, "swapped"))
		return nil
	}
	r := save(t, w, s, "k", SaveOptions{})
	var got []string
	for _, f := range r.Skipped {
		got = append(got, f.String())
	}
	same(t, "skipped", got, `"gone": unreadable`, `"swapped": symlink`)
}

func TestManifestRoundTrip(t *testing.T) {
	m := &manifest{
		packs: []packInfo{{hash{1}, 10}, {hash{2}, 1 << 40}},
		files: []entry{
			{path: "a", dir: true, perm: 0o755, mtime: -5},
			{path: "a/b", perm: 0o600, mtime: 1 << 60, size: 12, chunks: []chunk{{0, 0, 5, hash{3}}, {1, 1 << 39, 7, hash{4}}}, seen: identity{1, 1<<64 - 1, -9}},
			{path: "a/\xff", perm: 0},
		},
	}
	got, err := decode(m.encode())
	must(t, err)
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", m) {
		t.Errorf("%+v\n%+v", got, m)
	}
}

func FuzzManifest(f *testing.F) {
	body := []byte{1}
	body = append(body, make([]byte, 32)...)
	body = append(body, 9, 1, 0, 1, 'a', 2, 2, 3, 1, 1, 1, 1, 0, 0, 3)
	f.Add(body, make([]byte, 32))
	f.Fuzz(func(t *testing.T, body, sums []byte) {
		m, err := parse(body, sums)
		if err != nil {
			return
		}
		again, err := decode(m.encode())
		if err != nil || fmt.Sprintf("%+v", again) != fmt.Sprintf("%+v", m) {
			t.Errorf("%+v, %v", m, err)
		}
	})
}

func FuzzGlob(f *testing.F) {
	f.Add("a/**/b*", "a/x/bc")
	f.Fuzz(func(t *testing.T, glob, name string) {
		gs, err := compile([]string{glob})
		if err != nil || strings.HasPrefix(name, "/") {
			return
		}
		selected, below := gs.match(name)
		if selected && !below {
			t.Error("selected, and nothing below is")
		}
		// What is selected is still so further down, and what is not below never.
		if deeper, _ := gs.match(name + "/x"); deeper && !below || selected && !deeper {
			t.Errorf("%q: %v %v, but below: %v", name, selected, below, deeper)
		}
	})
}
