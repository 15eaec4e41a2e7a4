package checkpoint

import (
	"context"
	"io"
	"iter"
	"time"
)

// Store keeps named objects. Names consist of ASCII letters, digits and the characters
// '-', '_', '.', '%' and '/', and do not exceed 220 bytes. [OpenDir] gives a store in a directory; the nested
// module checkpoint/blobstore makes one of any bucket that gocloud.dev/blob can open.
//
// A Store must be safe for use by several goroutines.
type Store interface {
	// Put stores all that r yields under name, in place of what was there. The
	// object is visible, and durable, when Put returns nil; if it fails, or the
	// process dies, what was there before remains.
	Put(ctx context.Context, name string, r io.Reader) error
	// Get opens an object. The error matches fs.ErrNotExist if there is none.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// Delete removes an object; it is no error if there is none.
	Delete(ctx context.Context, name string) error
	// List yields the objects whose names start with prefix, in any order. It ends with its first error.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
}

// Object is what a store lists.
type Object struct {
	Name    string
	Size    int64
	ModTime time.Time
}
