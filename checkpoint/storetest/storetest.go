// Package storetest tests implementations of [checkpoint.Store].
package storetest

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/populationgenomics/postern-go/checkpoint"
)

// Run tests that what open returns, an empty store each time, keeps the promises of [checkpoint.Store].
func Run(t *testing.T, open func(t *testing.T) checkpoint.Store) {
	ctx := context.Background()
	put := func(t *testing.T, s checkpoint.Store, name, data string) {
		t.Helper()
		if err := s.Put(ctx, name, strings.NewReader(data)); err != nil {
			t.Fatal(err)
		}
	}
	get := func(t *testing.T, s checkpoint.Store, name string) string {
		t.Helper()
		r, err := s.Get(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	list := func(t *testing.T, s checkpoint.Store, prefix string) []string {
		t.Helper()
		var names []string
		for o, err := range s.List(ctx, prefix) {
			if err != nil {
				t.Fatal(err)
			}
			if want := int64(len(get(t, s, o.Name))); o.Size != want || o.ModTime.IsZero() {
				t.Errorf("%+v, want size %d and a time", o, want)
			}
			names = append(names, o.Name)
		}
		slices.Sort(names)
		return names
	}
	holds := func(t *testing.T, s checkpoint.Store, name, want string) {
		t.Helper()
		if got := get(t, s, name); got != want {
			t.Errorf("%s holds %.50q (%d bytes), want %.50q (%d bytes)", name, got, len(got), want, len(want))
		}
	}
	lists := func(t *testing.T, s checkpoint.Store, prefix string, want ...string) {
		t.Helper()
		if got := list(t, s, prefix); !slices.Equal(got, want) {
			t.Errorf("below %q: %q, want %q", prefix, got, want)
		}
	}

	t.Run("an object comes back, and is replaced", func(t *testing.T) {
		s := open(t)
		big := strings.Repeat("0123456789", 1<<20)
		for _, data := range []string{"one", big, "", "two"} {
			put(t, s, "a/b/c.d-e_f%2F", data)
			holds(t, s, "a/b/c.d-e_f%2F", data)
		}
	})
	t.Run("a missing object", func(t *testing.T) {
		s := open(t)
		put(t, s, "a/b", "x")
		for _, name := range []string{"none", "a/none", "a/b2"} {
			if _, err := s.Get(ctx, name); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("Get: %v", err)
			}
			if err := s.Delete(ctx, name); err != nil {
				t.Errorf("Delete: %v", err)
			}
		}
	})
	t.Run("list and delete", func(t *testing.T) {
		s := open(t)
		lists(t, s, "")
		for _, name := range []string{"p/1", "p/2", "p/20", "q/1", "pq/1"} {
			put(t, s, name, "data of "+name)
		}
		lists(t, s, "", "p/1", "p/2", "p/20", "pq/1", "q/1")
		lists(t, s, "p/", "p/1", "p/2", "p/20")
		lists(t, s, "p/2", "p/2", "p/20")
		lists(t, s, "p", "p/1", "p/2", "p/20", "pq/1")
		lists(t, s, "none/")
		if err := s.Delete(ctx, "p/2"); err != nil {
			t.Fatal(err)
		}
		lists(t, s, "p/", "p/1", "p/20")
		for range s.List(ctx, "") {
			break
		}
	})
	t.Run("a Put that fails leaves what was there", func(t *testing.T) {
		s := open(t)
		put(t, s, "a", "old")
		broken := errors.New("broken")
		for _, name := range []string{"a", "new"} {
			r := io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), failing{broken})
			if err := s.Put(ctx, name, r); !errors.Is(err, broken) {
				t.Errorf("Put: %v", err)
			}
		}
		holds(t, s, "a", "old")
		lists(t, s, "", "a")
	})
	t.Run("a cancelled context", func(t *testing.T) {
		s := open(t)
		put(t, s, "a", "old")
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		if err := s.Put(ctx, "a", strings.NewReader("new")); !errors.Is(err, context.Canceled) {
			t.Errorf("Put: %v", err)
		}
		holds(t, s, "a", "old")
		lists(t, s, "", "a")
	})
	t.Run("readers see one object or the other", func(t *testing.T) {
		s := open(t)
		a, b := strings.Repeat("a", 1<<16), strings.Repeat("b", 1<<16)
		put(t, s, "o", a)
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			for i := range 50 {
				data := a
				if i%2 == 0 {
					data = b
				}
				if err := s.Put(ctx, "o", strings.NewReader(data)); err != nil {
					t.Error(err)
				}
			}
		})
		for range 50 {
			if got := get(t, s, "o"); got != a && got != b {
				t.Errorf("%d bytes of neither", len(got))
			}
		}
	})
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
