"""TFRecord through tf.data, on the CPU.

Differences: the shuffle is approximate (files, then a buffer of samples), and batches continue across the
ends of epochs. As in TensorFlow's own recipes, only the crop is decoded, and it is resized without
antialiasing. Where a crop is larger than the output, this is less work than the others do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf

from experiments.loaders.peers.catalogue import SourceImage
from pcr_exp.measuring.throughput.job import AUGMENT, Images, Job

SHARD_IMAGES = 64
SHUFFLE_IMAGES = 512
"""Compressed samples in the shuffle buffer: eight shards."""
_FEATURES = {"jpeg": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}


def build(images: Sequence[SourceImage], folder: Path) -> None:
    """Write shards of 64 examples, with unchanged JPEG bytes."""
    for start in range(0, len(images), SHARD_IMAGES):
        with tf.io.TFRecordWriter(f"{folder}/{start // SHARD_IMAGES:06d}.tfrecord") as shard:
            for image in images[start : start + SHARD_IMAGES]:
                shard.write(_example(image).SerializeToString())


def batches(folder: Path, job: Job) -> Iterator[Images]:
    """Yield uint8 [B, H, W, 3]."""
    tf.config.set_visible_devices([], "GPU")
    workers = max(1, job.settings.num_workers)
    options = tf.data.Options()
    options.threading.private_threadpool_size = workers
    options.threading.max_intra_op_parallelism = 1
    options.deterministic = False
    shards = sorted(map(str, folder.glob("*.tfrecord")))
    dataset = (
        tf.data.Dataset.from_tensor_slices(shards)
        .shuffle(len(shards), seed=job.seed)
        .interleave(tf.data.TFRecordDataset, cycle_length=workers, num_parallel_calls=workers)
        .shuffle(SHUFFLE_IMAGES, seed=job.seed)
        .repeat(job.num_epochs)
        .map(partial(_crop, job.image_size), num_parallel_calls=workers)
        .batch(job.batch_size)
        .prefetch(job.settings.prefetch_batches)
        .with_options(options)
    )
    for images, _labels in dataset:
        yield images


def _example(image: SourceImage) -> Any:
    jpeg = tf.train.BytesList(value=[Path(image.path).read_bytes()])
    label = tf.train.Int64List(value=[image.label])
    features = {"jpeg": tf.train.Feature(bytes_list=jpeg), "label": tf.train.Feature(int64_list=label)}
    return tf.train.Example(features=tf.train.Features(feature=features))


def _crop(image_size: int, example: Any) -> tuple[Any, Any]:
    sample = tf.io.parse_single_example(example, _FEATURES)
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(sample["jpeg"]),
        tf.zeros([1, 0, 4]),
        area_range=AUGMENT.crop_scale,
        aspect_ratio_range=AUGMENT.crop_ratio,
        max_attempts=10,
        use_image_if_no_bounding_boxes=True,
    )
    window = tf.concat([begin[:2], size[:2]], 0)
    image = tf.image.decode_and_crop_jpeg(sample["jpeg"], window, channels=3)
    image = tf.cast(tf.image.resize(image, [image_size, image_size]), tf.uint8)
    return tf.image.random_flip_left_right(image), sample["label"]
