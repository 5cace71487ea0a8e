// sdk.hpp - all of the SDK's layers.
//
//   controller.hpp             the controller interface, and what its callbacks return
//   host.hpp, step.hpp         what the host does and tells; lines.hpp: the lines of an argument
//   vocabulary.hpp             the tokens; token_set.hpp: sets of them
//   recognizer.hpp             constraints on text as a stack of states; bias.hpp: the tokens they allow
//   functional.hpp             constraints as pure functions; signature.hpp: what makes them fast
//   string_recognizer.hpp      constraints as lists of strings; choices.hpp: one of several texts,
//                              in the tokens that a model knows for them: spelling.hpp
//   warmable.hpp               tables that are filled ahead of the requests that will need them
//   recognizer_controller.hpp  a controller of any of these; constraint.hpp: a part of a controller;
//                              any_constraint.hpp: one that is chosen while the program runs
//   tokenwise.hpp              the older controller interface
#pragma once

#include "aici/any_constraint.hpp"
#include "aici/bias.hpp"
#include "aici/choices.hpp"
#include "aici/constraint.hpp"
#include "aici/controller.hpp"
#include "aici/functional.hpp"
#include "aici/host.hpp"
#include "aici/lines.hpp"
#include "aici/recognizer.hpp"
#include "aici/recognizer_controller.hpp"
#include "aici/signature.hpp"
#include "aici/step.hpp"
#include "aici/string_recognizer.hpp"
#include "aici/token_set.hpp"
#include "aici/tokenwise.hpp"
#include "aici/types.hpp"
#include "aici/vocabulary.hpp"
#include "aici/warmable.hpp"
