# ruff: noqa: F403, F405
# How Paddle v0 reads the reviews. It runs Python 2.
from paddle.trainer.PyDataProvider2 import *

UNKNOWN_WORD = 0


def initializer(settings, dictionary, **kwargs):
    settings.word_dict = dictionary
    settings.input_types = [sparse_binary_vector(len(dictionary)), integer_value(2)]


@provider(init_hook=initializer, cache=CacheType.CACHE_PASS_IN_MEM)
def process(settings, file_name):
    with open(file_name) as f:
        for line in f:
            label, review = line.rstrip("\n").split("\t")
            words = {settings.word_dict.get(w, UNKNOWN_WORD) for w in review.split()}
            yield sorted(words), int(label)
