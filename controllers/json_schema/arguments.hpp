// arguments.hpp - the argument of the controller: a schema, or a schema with options.
#pragma once

#include <string_view>

#include "aici/json_schema/document.hpp"
#include "aici/json_schema/schema.hpp"

struct Arguments {
  aici::json_schema::Document schema;
  aici::json_schema::Options options;
};

/// Parses the argument. Fails the controller if it is not JSON or has unknown options.
Arguments read_arguments(std::string_view argument);
