package blobstore

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/populationgenomics/postern-go/checkpoint"
	"github.com/populationgenomics/postern-go/checkpoint/storetest"
	"github.com/populationgenomics/postern-go/workspace"
	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/blob/memblob"
)

func buckets(t *testing.T, test func(t *testing.T, open func(t *testing.T) *blob.Bucket)) {
	t.Run("memory", func(t *testing.T) {
		test(t, func(t *testing.T) *blob.Bucket { return closed(t, memblob.OpenBucket(nil)) })
	})
	t.Run("file", func(t *testing.T) {
		test(t, func(t *testing.T) *blob.Bucket {
			// Temporary files beside the bucket's, since a rename cannot cross file systems, and no
			// second file per object, which this driver replaces a moment later than the first.
			b, err := fileblob.OpenBucket(t.TempDir(), &fileblob.Options{NoTempDir: true, Metadata: fileblob.MetadataDontWrite})
			if err != nil {
				t.Fatal(err)
			}
			return closed(t, b)
		})
	})
	t.Run("prefixed", func(t *testing.T) {
		test(t, func(t *testing.T) *blob.Bucket {
			return closed(t, blob.PrefixedBucket(memblob.OpenBucket(nil), "some/prefix/"))
		})
	})
}

func closed(t *testing.T, b *blob.Bucket) *blob.Bucket {
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestStore(t *testing.T) {
	buckets(t, func(t *testing.T, open func(t *testing.T) *blob.Bucket) {
		storetest.Run(t, func(t *testing.T) checkpoint.Store { return New(open(t)) })
	})
}

func TestSaveHereLoadThere(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("package workspace needs a Unix")
	}
	buckets(t, func(t *testing.T, open func(t *testing.T) *blob.Bucket) {
		s := New(open(t))
		from, to := t.TempDir(), t.TempDir()
		for name, data := range map[string]string{"a": "one", "d/b": "two", "tmp/c": "three"} {
			at := filepath.Join(from, name)
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(at, []byte(data), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		w, err := workspace.Open(from)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if _, err := checkpoint.Save(t.Context(), w, s, "run/42", checkpoint.SaveOptions{Globs: []string{"a", "d/**"}}); err != nil {
			t.Fatal(err)
		}
		w2, err := workspace.Open(to)
		if err != nil {
			t.Fatal(err)
		}
		defer w2.Close()
		if _, err := checkpoint.Load(t.Context(), w2, s, "run/42", checkpoint.LoadOptions{}); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"a": "one", "d/b": "two", "tmp/c": ""} {
			if got, _ := os.ReadFile(filepath.Join(to, name)); string(got) != want {
				t.Errorf("%s holds %q, want %q", name, got, want)
			}
		}
	})
}
