package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"golang.org/x/sync/errgroup"

	"rcgrpo/engine/lang"
)

// s3 is a bucket of S3-compatible storage, or the part of one below a prefix.
type s3 struct {
	lang.S3
	client func() (*minio.Core, error) // made by the first call: a run that finds all results here needs none
}

const (
	s3Attempts  = 4        // to send a request that the network loses, or for which the server is busy
	s3Part      = 16 << 20 // bytes of a part; objects up to this size have none
	s3Parts     = 10_000   // most of an object
	s3PartsPage = 1000     // of a listing
	s3Threads   = 4        // parts of an object that are sent at once
)

func newS3(at lang.S3, parallel int) s3 {
	return s3{at, sync.OnceValues(func() (*minio.Core, error) {
		transport, err := minio.DefaultTransport(at.TLS)
		if err != nil {
			return nil, err
		}
		transport.MaxIdleConnsPerHost = parallel
		core, err := minio.NewCore(at.Host, &minio.Options{Creds: credentials.NewChainCredentials(credentialSources()),
			Secure: at.TLS, Region: at.Region, MaxRetries: s3Attempts, Transport: retryAfter{transport}})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at.Host, err)
		}
		return core, nil
	})}
}

// credentialSources are the usual ones: variables, files of the AWS tools, then the role of a container or machine.
func credentialSources() []credentials.Provider {
	all := []credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}}
	if os.Getenv("AWS_EC2_METADATA_DISABLED") == "true" {
		return all
	}
	return append(all, &credentials.IAM{})
}

// open returns the client. Without credentials the storage is not asked. Those of files are read for each request, so
// that new ones replace those that have ended.
func (s s3) open() (*minio.Core, error) {
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	if keys, err := c.GetCreds(); err == nil && keys.AccessKeyID != "" {
		return c, nil
	}
	_, err = new(credentials.FileAWSCredentials).RetrieveWithCredContext(nil)
	if err == nil {
		err = errors.New("the profile has no keys")
	}
	return nil, fmt.Errorf("no credentials for %s: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE (%w)",
		s.Host, err)
}

// translate replaces errors of the client by those of a bucket. Other errors name no object, so that they are equal for
// all objects.
func (s s3) translate(err error) error {
	if err == nil {
		return nil
	}
	answer := minio.ToErrorResponse(err)
	denied := answer.StatusCode == http.StatusForbidden || answer.StatusCode == http.StatusUnauthorized
	switch {
	case answer.Code == minio.NoSuchKey:
		return errMissing
	case answer.StatusCode == http.StatusPreconditionFailed:
		return errExists
	case denied, answer.Code == "ExpiredToken", answer.Code == "InvalidToken":
		return fmt.Errorf("%w: %s (%s)", errDenied, strings.TrimSuffix(answer.Message, "."), answer.Code)
	}
	if request, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("%s: %w", s.Host, request.Err)
	}
	return fmt.Errorf("%s: %w", s.Host, err)
}

func (s s3) Get(ctx context.Context, name string, from int64) (io.ReadCloser, error) {
	c, err := s.open()
	if err != nil {
		return nil, err
	}
	var o minio.GetObjectOptions
	if from > 0 {
		if err := o.SetRange(from, 0); err != nil {
			return nil, err
		}
	}
	body, _, _, err := c.GetObject(ctx, s.Bucket, s.Prefix+name, o)
	return body, s.translate(err)
}

func (s s3) Put(ctx context.Context, name string, body *io.SectionReader) error {
	return s.put(ctx, name, body, minio.PutObjectOptions{})
}

func (s s3) Create(ctx context.Context, name string, body *io.SectionReader) error {
	o := minio.PutObjectOptions{DisableMultipart: true} // the condition holds for one request
	o.SetMatchETagExcept("*")
	return s.put(ctx, name, body, o)
}

func (s s3) put(ctx context.Context, name string, body *io.SectionReader, o minio.PutObjectOptions) error {
	c, err := s.open()
	if err != nil {
		return err
	}
	for range s3Attempts {
		if body.Size() > s3Part && !o.DisableMultipart {
			err = s.putParts(ctx, c, s.Prefix+name, body)
		} else {
			_, err = c.Client.PutObject(ctx, s.Bucket, s.Prefix+name, body, body.Size(), o)
		}
		switch minio.ToErrorResponse(err).Code {
		case "ConditionalRequestConflict": // another machine writes it at the same time
			continue
		case minio.NoSuchUpload, minio.InvalidPart: // another machine continues or has completed the same upload
			if info, err := s.Stat(ctx, name); err == nil && info.Bytes == body.Size() {
				return nil
			}
			continue
		}
		break
	}
	return s.translate(err)
}

// putParts writes a large object in parts. Parts that an interrupted attempt has sent stay in the storage and are not
// sent again: the name of a large object follows from its bytes.
func (s s3) putParts(all context.Context, c *minio.Core, key string, body *io.SectionReader) error {
	id, sent, err := s.unfinished(all, c, key)
	if err != nil {
		return err
	}
	size := max(s3Part, (body.Size()+s3Parts-1)/s3Parts)
	parts := make([]minio.CompletePart, (body.Size()+size-1)/size)
	group, ctx := errgroup.WithContext(all)
	group.SetLimit(s3Threads)
	for i := range parts {
		group.Go(func() error {
			from := int64(i) * size
			n := min(size, body.Size()-from)
			part, ok := sent[i+1]
			if !ok || part.Size != n {
				var err error
				part, err = c.PutObjectPart(ctx, s.Bucket, key, id, i+1, io.NewSectionReader(body, from, n), n,
					minio.PutObjectPartOptions{})
				if err != nil {
					return err
				}
			}
			parts[i] = minio.CompletePart{PartNumber: i + 1, ETag: part.ETag}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	_, err = c.CompleteMultipartUpload(all, s.Bucket, key, id, parts, minio.PutObjectOptions{})
	return err
}

// unfinished returns the upload of an object that an earlier attempt has begun, with its parts, or a new one.
func (s s3) unfinished(ctx context.Context, c *minio.Core, key string) (
	id string, sent map[int]minio.ObjectPart, err error) {
	uploads, err := c.ListMultipartUploads(ctx, s.Bucket, key, "", "", "", 1)
	if err != nil || len(uploads.Uploads) == 0 || uploads.Uploads[0].Key != key { // the listing may be denied
		id, err = c.NewMultipartUpload(ctx, s.Bucket, key, minio.PutObjectOptions{})
		return id, nil, err
	}
	id = uploads.Uploads[0].UploadID
	sent, err = s.parts(ctx, c, key, id)
	return id, sent, err
}

// parts returns the parts of an unfinished upload by number.
func (s s3) parts(ctx context.Context, c *minio.Core, key, id string) (map[int]minio.ObjectPart, error) {
	sent := map[int]minio.ObjectPart{}
	for last := 0; ; {
		page, err := c.ListObjectParts(ctx, s.Bucket, key, id, last, s3PartsPage)
		if err != nil {
			return nil, err
		}
		for _, part := range page.ObjectParts {
			sent[part.PartNumber] = part
		}
		if last = page.NextPartNumberMarker; !page.IsTruncated {
			return sent, nil
		}
	}
}

func (s s3) Unfinished(ctx context.Context) (all []Upload, err error) {
	c, err := s.open()
	if err != nil {
		return nil, err
	}
	for u := range c.ListIncompleteUploads(ctx, s.Bucket, s.Prefix+"v1/", true) {
		if u.Err != nil {
			err = errors.Join(err, u.Err)
			continue // to the end, where the client closes the channel
		}
		upload := Upload{Info{Name: strings.TrimPrefix(u.Key, s.Prefix), Time: u.Initiated}, u.UploadID}
		parts, partsErr := s.parts(ctx, c, u.Key, u.UploadID)
		for _, part := range parts {
			upload.Bytes += part.Size
			if part.LastModified.After(upload.Time) {
				upload.Time = part.LastModified
			}
		}
		if minio.ToErrorResponse(partsErr).Code == minio.NoSuchUpload { // it was completed meanwhile
			continue
		}
		all, err = append(all, upload), errors.Join(err, partsErr)
	}
	return all, s.translate(err)
}

func (s s3) Abort(ctx context.Context, u Upload) error {
	c, err := s.open()
	if err != nil {
		return err
	}
	err = c.AbortMultipartUpload(ctx, s.Bucket, s.Prefix+u.Name, u.id)
	if minio.ToErrorResponse(err).Code == minio.NoSuchUpload {
		return nil
	}
	return s.translate(err)
}

func (s s3) Stat(ctx context.Context, name string) (Info, error) {
	c, err := s.open()
	if err != nil {
		return Info{}, err
	}
	info, err := c.StatObject(ctx, s.Bucket, s.Prefix+name, minio.StatObjectOptions{})
	return Info{name, info.Size, info.LastModified}, s.translate(err)
}

func (s s3) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		c, err := s.open()
		if err != nil {
			yield(Info{}, err)
			return
		}
		all := minio.ListObjectsOptions{Prefix: s.Prefix + prefix, Recursive: true}
		for o := range c.Client.ListObjectsIter(ctx, s.Bucket, all) {
			info := Info{strings.TrimPrefix(o.Key, s.Prefix), o.Size, o.LastModified}
			if !yield(info, s.translate(o.Err)) {
				return
			}
		}
	}
}

func (s s3) Delete(ctx context.Context, name string) error {
	c, err := s.open()
	if err != nil {
		return err
	}
	return s.translate(c.RemoveObject(ctx, s.Bucket, s.Prefix+name, minio.RemoveObjectOptions{}))
}

// retryAfter is a transport that returns the answer of a busy server after the time in its header Retry-After, so that
// the next attempt comes later.
type retryAfter struct{ http.RoundTripper }

func (p retryAfter) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := p.RoundTripper.RoundTrip(request)
	if err != nil || answer.StatusCode != http.StatusServiceUnavailable &&
		answer.StatusCode != http.StatusTooManyRequests {
		return answer, err
	}
	if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil {
		select {
		case <-time.After(time.Duration(seconds) * time.Second):
		case <-request.Context().Done():
		}
	}
	return answer, nil
}
