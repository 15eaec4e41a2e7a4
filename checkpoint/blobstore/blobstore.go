// Package blobstore keeps checkpoints in a bucket: S3, Google Cloud Storage, Azure
// Blob Storage, or whatever else gocloud.dev/blob has a driver for.
//
//	import _ "gocloud.dev/blob/s3blob" // links the driver
//
//	bucket, err := blob.OpenBucket(ctx, "s3://my-checkpoints?region=eu-west-1")
//	...
//	defer bucket.Close()
//	report, err := checkpoint.Save(ctx, ws, blobstore.New(bucket), "run-42", opts)
//
// It is a Go module of its own, so that programs that do not use it do not see its
// dependencies.
package blobstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"

	"github.com/populationgenomics/postern-go/checkpoint"
	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

// New makes a bucket a [checkpoint.Store]. Closing the bucket stays with the caller.
// To keep several stores in one bucket wrap it with [blob.PrefixedBucket].
//
// How durable an object is when Put returns, and whether a reader can still see the one
// it replaced, is up to the bucket's driver.
func New(bucket *blob.Bucket) checkpoint.Store { return store{bucket} }

type store struct{ bucket *blob.Bucket }

func (s store) Put(ctx context.Context, name string, r io.Reader) error {
	// A writer whose context ends before Close drops what it has; that is the only way to abort one.
	ctx, abort := context.WithCancel(ctx)
	defer abort()
	w, err := s.bucket.NewWriter(ctx, name, &blob.WriterOptions{ContentType: "application/octet-stream"})
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		abort()
		w.Close() // fails, as is intended
		return err
	}
	return w.Close()
}

func (s store) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := s.bucket.NewReader(ctx, name, nil)
	if err != nil {
		return nil, notExist(err)
	}
	return r, nil
}

func (s store) Delete(ctx context.Context, name string) error {
	err := s.bucket.Delete(ctx, name)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil
	}
	return err
}

func (s store) List(ctx context.Context, prefix string) iter.Seq2[checkpoint.Object, error] {
	return func(yield func(checkpoint.Object, error) bool) {
		it := s.bucket.List(&blob.ListOptions{Prefix: prefix})
		for {
			o, err := it.Next(ctx)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(checkpoint.Object{}, err)
				return
			}
			if !o.IsDir && !yield(checkpoint.Object{Name: o.Key, Size: o.Size, ModTime: o.ModTime}, nil) {
				return
			}
		}
	}
}

// notExist lets errors.Is find the standard library's error for a missing object.
func notExist(err error) error {
	if gcerrors.Code(err) == gcerrors.NotFound {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return err
}
