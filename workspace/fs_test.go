//go:build linux

package workspace

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"text/template"
)

func TestFS(t *testing.T) {
	w, dir := newWorkspace(t)
	out := outside(t, dir)
	plant(t, dir, "index.html", "a/b/c.txt", "a/e/", "z.tmpl",
		"l->"+out+"/secret", "a/l->"+out, "p|", "s@", "a/\xff\xfe")
	must(t, w.WriteFile("index.html", []byte("<h1>hello</h1>")))
	fsys := w.FS()

	t.Run("249 fstest.TestFS, with links and FIFOs around", func(t *testing.T) {
		must(t, fstest.TestFS(fsys, "index.html", "a/b/c.txt", "a/e", "z.tmpl"))
		sub, err := fs.Sub(fsys, "a")
		must(t, err)
		must(t, fstest.TestFS(sub, "b/c.txt", "e"))
	})
	t.Run("WalkDir sees files and directories only", func(t *testing.T) {
		var got []string
		must(t, fs.WalkDir(fsys, ".", func(path string, d fs.DirEntry, err error) error {
			got = append(got, path)
			return err
		}))
		if want := []string{".", "a", "a/b", "a/b/c.txt", "a/e", "index.html", "z.tmpl"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
	t.Run("errors are path errors that say why", func(t *testing.T) {
		for name, want := range map[string]error{
			"l": Symlink, "a/l/secret": Symlink, "p": FIFO, "s": Socket, "none": fs.ErrNotExist,
			"/etc/passwd": fs.ErrInvalid, "../outside/secret": fs.ErrInvalid, "a//b": fs.ErrInvalid,
		} {
			f, oerr := fsys.Open(name)
			if f != nil {
				t.Errorf("Open(%s) gives a file", name)
			}
			_, rerr := fs.ReadFile(fsys, name)
			_, serr := fs.Stat(fsys, name)
			_, derr := fs.ReadDir(fsys, name)
			for _, err := range []error{oerr, rerr, serr, derr} {
				if _, ok := err.(*fs.PathError); !ok || !errors.Is(err, want) {
					t.Errorf("%s: %T %v, want %v", name, err, err, want)
				}
			}
		}
	})
	t.Run("http", func(t *testing.T) {
		srv := httptest.NewServer(http.FileServer(http.FS(fsys)))
		defer srv.Close()
		defer srv.Client().CloseIdleConnections()
		for path, want := range map[string]string{
			"/": "200 <h1>hello</h1>", "/a/b/c.txt": "200 a/b/c.txt", "/l": "403", "/a/l/secret": "403", "/p": "403",
			"/none": "404", "/a/": `200 <a href="b/">`, "/..%2foutside/secret": "4",
		} {
			resp, err := srv.Client().Get(srv.URL + path)
			must(t, err)
			body, err := io.ReadAll(resp.Body)
			must(t, err)
			resp.Body.Close()
			got := resp.Status[:3] + " " + string(body)
			if resp.StatusCode != 200 {
				got = resp.Status
			}
			if !strings.Contains(strings.ReplaceAll(got, "\n", " "), strings.TrimPrefix(want, "200 ")) || got[:1] != want[:1] {
				t.Errorf("GET %s: %q, want %q", path, got, want)
			}
			if strings.Contains(got, secret) {
				t.Errorf("GET %s leaks", path)
			}
		}
	})
	t.Run("templates", func(t *testing.T) {
		if _, err := template.ParseFS(fsys, "*.tmpl"); err != nil {
			t.Error(err)
		}
	})
	intact(t, out)
}
