// SPDX-License-Identifier: Apache-2.0
//
// The settings that several of Keras's layers share, read and checked. Those that take config and key leave their
// output as it is where the setting is absent (or null, where null is no value): the caller has put the default there.
#ifndef NN_SETTING_H
#define NN_SETTING_H

#include "workerd/nn/init.h"
#include "workerd/nn/json.h"
#include "workerd/nn/ops/activation.h"

enum nn_padding { NN_VALID, NN_SAME, NN_CAUSAL };

enum ps_code nn_setting_bool(const struct nn_json *config, const char *key, bool *v, struct ps_error *e);
// An object that Keras wrote says in module and registered_name whose class class_name is: expected is one of Keras's.
// By hand these may be left out.
enum ps_code nn_setting_class(const struct nn_json *object, struct ps_error *e);
// A setting of which we have one value only.
enum ps_code nn_setting_only_word(const struct nn_json *config, const char *key, const char *word, struct ps_error *e);
enum ps_code nn_setting_only_number(const struct nn_json *config, const char *key, double number, struct ps_error *e);
enum ps_code nn_setting_size(const struct nn_json *at, int *v, struct ps_error *e);  // 1 or more
// n numbers, 1 or 2, each min or more: of (height, width), or of the steps of a sequence. [3, 3], or 3 for all.
enum ps_code nn_setting_sizes(const struct nn_json *at, int n, int min, int *v, struct ps_error *e);
// What is added to, or taken from, the two ends of n axes: 1, [1, 2], which is (height, width) where there are both,
// and (begin, end) of a sequence, or [[1, 2], [3, 4]].
enum ps_code nn_setting_margins(const struct nn_json *at, int n, int (*v)[2], struct ps_error *e);
// "valid", "same", or, where a layer has it, "causal".
enum ps_code nn_setting_padding(const struct nn_json *config, bool causal, enum nn_padding *v, struct ps_error *e);
// An activation: its name, or a layer that is one, with its settings. Absent or null: linear.
enum ps_code nn_setting_function(const struct nn_json *at, struct nn_function *f, struct ps_error *e);
// That which a layer of this class is: ReLU, LeakyReLU, ELU, Softmax over the last axis.
enum ps_code nn_function_of_class(const struct nn_json *config, const char *class, struct nn_function *f,
                                  struct ps_error *e);
// Was the document written by Keras 2? Some names mean something else there.
bool nn_setting_is_keras2(const struct nn_json *at);
// x + y in Keras 3, and keras.ops: no layer; it looks at no masks, and what it gives has none.
bool nn_setting_is_operation(const struct nn_json *at);
enum ps_code nn_setting_dtype(const struct nn_json *config, struct ps_error *e);  // a policy: float32
// Of an input: floats, whole numbers of any size, truth values, which are floats here, or strings, which the reader of
// the data makes numbers of.
enum ps_code nn_setting_input_dtype(const struct nn_json *config, enum nn_dtype *dtype, bool *text, struct ps_error *e);
// Of a model or a layer: it becomes part of variable names, paths and log lines. *v is the document's.
enum ps_code nn_setting_name(const struct nn_json *at, const char **v, struct ps_error *e);

#endif
