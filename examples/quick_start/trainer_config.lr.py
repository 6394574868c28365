# ruff: noqa: F403, F405
# Logistic regression over a bag of words, for Paddle v0.
from paddle.trainer_config_helpers import *

word_dict = {}
with open(get_config_arg("dict_file", str, "./dict.txt")) as f:
    for i, line in enumerate(f):
        word_dict[line.split()[0]] = i

define_py_data_sources2(
    train_list="data/train.list",
    test_list="data/test.list",
    module="dataprovider_bow",
    obj="process",
    args={"dictionary": word_dict},
)

settings(batch_size=get_config_arg("batch_size", int, 50), learning_rate=get_config_arg("learning_rate", float, 0.01))

data = data_layer(name="word", size=len(word_dict))
output = fc_layer(input=data, size=2, act=SoftmaxActivation())
label = data_layer(name="label", size=2)
outputs(classification_cost(input=output, label=label))
